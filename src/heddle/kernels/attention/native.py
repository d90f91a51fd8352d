"""The FIBER-native attention kernels, by architecture."""

from __future__ import annotations

from heddle.kernels._native import NativeKernels
from heddle.kernels.attention.backward.sm80_fiber_native import SM80_FIBER_BACKWARD
from heddle.kernels.attention.backward.sm90_fiber_native import SM90_FIBER_BACKWARD
from heddle.kernels.attention.backward.sm100_fiber_native import SM100_FIBER_BACKWARD
from heddle.kernels.attention.forward.sm80_fiber_native import SM80_FIBER
from heddle.kernels.attention.forward.sm90_fiber_native import SM90_FIBER
from heddle.kernels.attention.forward.sm100_fiber_native import SM100_FIBER

NATIVE: NativeKernels = {"sm_80": SM80_FIBER, "sm_90": SM90_FIBER, "sm_100": SM100_FIBER}
"""What `heddle run attention --mode fiber` runs; an architecture that is not listed has none."""
NATIVE_BACKWARD: NativeKernels = {
    "sm_80": SM80_FIBER_BACKWARD,
    "sm_90": SM90_FIBER_BACKWARD,
    "sm_100": SM100_FIBER_BACKWARD,
}
"""The same for the main kernel of the backward pass, `attention_bwd`."""
