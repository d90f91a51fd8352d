"""Makes a cubin CUDA-native on FIBER hardware: one SET_FIBER_NUM in front of each kernel, everything else moved along.

A branch and its target move together, so that inserting at a kernel's first instruction changes no instruction: return
addresses, jump tables and tables of functions are relative to a base that the code computes from its own place.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.isa.cubin.cubin import Cubin, Function, opcodes
from heddle.isa.cubin.note import FiberKernel, note_section, read_note
from heddle.isa.cubin.resources import resources
from heddle.isa.cubin.rewrite import Code128, rewrite
from heddle.isa.cubin.shift import insert
from heddle.isa.words import Words, from_ints

SET_FIBER_NUM = 0x9F8
MOST_FIBERS = 0xFFFF
ALWAYS = 7
"""Guard PT."""
CONTROL_STALL_ALL = 0x03FFC200_00000000 << 64
"""Stall 1, no barrier set, waits for all six: nothing of the caller's may be in flight when the wefts change."""


def set_fiber_num(fibers: int, guard: int = ALWAYS) -> Words:
    """Return the word that sets the number of fibers of the FIBER-thread. Raises UserError for more than 65,535."""
    if not 0 < fibers <= MOST_FIBERS:
        raise UserError(f"SET_FIBER_NUM of {fibers} fibers: allowed are 1 to {MOST_FIBERS}")
    return from_ints([SET_FIBER_NUM | guard << 12 | fibers << 16 | CONTROL_STALL_ALL])


@dataclass(frozen=True, slots=True)
class Patched:
    """The bytes of the patched cubin, and by kernel the number of fibers that it sets."""

    data: bytes
    fibers: dict[str, int]


def patch_entry(cubin: Cubin, fibers: int | None = None) -> Patched:
    """Return the cubin with SET_FIBER_NUM in front of every kernel.

    `fibers` is the number of threads of a block; left open, each kernel's own: the size it requires of its block
    (`reqntid`), else its launch bound. Raises UserError for what is not supported, with the reason.
    """
    _ = cubin.architecture
    if not cubin.kernels:
        raise UserError(f"{cubin.what} has no kernels: there is nothing to patch")
    if read_note(cubin):
        raise UserError(f"{cubin.what} is patched already: it has a FIBER note")
    counts = {kernel.name: fibers or _own_fibers(cubin, kernel) for kernel in cubin.kernels}
    codes: dict[int, Code128] = {}
    for kernel in cubin.kernels:
        if kernel.start or kernel.section in codes:
            raise UserError(f"{cubin.what}: kernel {kernel.name} does not begin its section of code")
        words = cubin.words(kernel.section)
        if (opcodes(words) == SET_FIBER_NUM).any():
            raise UserError(f"{cubin.what}: kernel {kernel.name} has SET_FIBER_NUM already")
        new, shift = insert(words, {0: set_fiber_num(counts[kernel.name])})
        codes[kernel.section] = Code128(new, shift)
    note = note_section([FiberKernel.cuda_native(name, count) for name, count in counts.items()])
    return Patched(rewrite(cubin, codes, (note,)), counts)


def _own_fibers(cubin: Cubin, kernel: Function) -> int:
    needs = resources(cubin, kernel)
    count = needs.required_threads or needs.max_threads
    if not count:
        raise UserError(
            f"{cubin.what}: kernel {kernel.name} does not say how many threads its block has",
            hint="give the size of the block with --fibers N, or compile with __launch_bounds__",
        )
    return count
