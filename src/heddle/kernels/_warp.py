"""What a warp is on every GPU that kernels are written for (PTX ISA, machine model)."""

LANES = 32
"""Threads of a warp."""
REGISTER_BYTES = 4
"""Of one thread's register."""
GROUP_WARPS = 4
"""Warps of a warp group, which wgmma and tcgen05 address as one."""
