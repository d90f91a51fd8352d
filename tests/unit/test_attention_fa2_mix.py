"""Does the main loop of FlashAttention 2 have the instructions of the compiled one?

Counts of one block of K and V of a warp, from the open kernel compiled with CUDA 13.0 for sm_80 (fp16, full attention,
lengths that blocks divide). Not compared: moves, addresses, spills (10 for d = 128, 78 for d = 64).
"""

from collections import Counter
from typing import Any

import pytest

from heddle.ir.warp import Instruction
from heddle.machine import machine
from heddle.pipeline import compile_kernel

OPS = ("HMMA", "LDSM", "FMNMX", "FMUL", "FFMA", "MUFU", "FADD", "F2FP", "SHFL")
COMPILED: dict[int, tuple[tuple[int, ...], int]] = {
    64: ((256, 72, 136, 72, 132, 132, 128, 64, 8), 1146 - 78),
    128: ((256, 80, 72, 136, 68, 68, 64, 32, 8), 910 - 10),
}
"""By head size: counts of `OPS`, instructions in all without spills."""
MARGIN = 0.1


def main_loop(head_dim: int, **sizes: Any) -> list[Instruction]:
    """Return the last loop over blocks: that without masks."""
    params = {"batch": 1, "heads_q": 1, "seqlen_q": 1024, "head_dim": head_dim, **sizes}
    program = compile_kernel("attention", machine("a100"), params)
    first, last = [(row.target, pc) for pc, row in enumerate(program.instructions) if row.op == "LOOP"][-1]
    assert first is not None
    return list(program.instructions[first : last + 1])


@pytest.mark.parametrize("head_dim", COMPILED)
def test_main_loop_against_the_compiled_one(head_dim: int) -> None:
    counts, instructions = COMPILED[head_dim]
    loop = main_loop(head_dim)
    mix = Counter(row.op for row in loop)
    assert tuple(mix[op] for op in OPS) == counts
    assert len(loop) == pytest.approx(instructions, rel=MARGIN)


def test_products_with_v_begin_before_the_last_exponentials() -> None:
    """Compiled: 54 of 68 exponentials of d = 128 come after the first product with V, 78 of 132 of d = 64."""
    for head_dim in COMPILED:
        loop = [row.op for row in main_loop(head_dim)]
        first = loop.index("HMMA")  # the loop begins with the softmax of a block whose scores are there
        assert "MUFU" in loop[first:]


def test_each_block_has_two_barriers_and_two_waits_for_copies() -> None:
    mix = Counter(row.op for row in main_loop(128))
    assert (mix["BAR.SYNC"], mix["DEPBAR"], mix["LDGSTS"]) == (2, 2, 16)
