"""Does the main loop of FlashAttention 3 have the instructions of the compiled one?

Counts of one K/V block of a warp, from the disassembly of the open kernel (CUDA 13.0, sm_90a), retry code left out.
"""

from collections import Counter
from typing import Any

import pytest

from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine import machine
from heddle.pipeline import compile_kernel

MARGIN = 0.15
OPS = ("HGMMA", "FFMA", "FMNMX", "FADD", "MUFU", "FMUL", "F2FP")
COMPILED: dict[str, tuple[dict[str, Any], int, tuple[int, ...], int]] = {
    "d128 full": ({"head_dim": 128, "causal": 0}, 590, (19, 90, 92, 88, 90, 68, 44), 0),
    "d128 causal": ({"head_dim": 128, "causal": 1}, 465, (16, 66, 68, 64, 66, 68, 32), 0),
    "d64 full": ({"head_dim": 64, "causal": 0}, 628, (16, 98, 100, 96, 98, 36, 48), 12),
    "d64 causal": ({"head_dim": 64, "causal": 1}, 427, (12, 66, 68, 64, 66, 36, 32), 0),
    "d256 full": ({"head_dim": 256, "causal": 0}, 461, (21, 42, 44, 40, 42, 132, 20), 0),
}
"""Parameters, instructions in all, those of `OPS`, STSM."""


def main_loop(program: WarpProgram) -> list[Instruction]:
    """Return the last loop over blocks of the first consumer: that without masks."""
    end = program.roles[1].entry
    loops = [(row.target, pc) for pc, row in enumerate(program.instructions[:end]) if row.op == "LOOP"]
    first, last = loops[-1]
    assert first is not None
    return list(program.instructions[first : last + 1])


@pytest.mark.parametrize("name", COMPILED)
def test_main_loop_against_the_compiled_one(name: str) -> None:
    params, instructions, counts, stores = COMPILED[name]
    sizes = {"batch": 1, "heads_q": 1, "seqlen_q": 1536, **params}
    loop = main_loop(compile_kernel("attention", machine("h100"), sizes))
    mix = Counter(row.op for row in loop)
    assert tuple(mix[op] for op in OPS) == pytest.approx(counts, rel=MARGIN)
    assert mix["STSM"] == stores
    assert len(loop) == pytest.approx(instructions, rel=MARGIN)


def test_a_masked_block_compares_and_selects_every_element() -> None:
    sizes = {"batch": 1, "heads_q": 1, "seqlen_q": 512, "head_dim": 128, "causal": 1, "seqlen_kv": 600}
    program = compile_kernel("attention", machine("h100"), sizes)
    loops = [(row.target or 0, pc) for pc, row in enumerate(program.instructions) if row.op == "LOOP"]
    masked = Counter(row.op for row in program.instructions[loops[0][0] : loops[0][1]])
    assert (masked["ISETP"], masked["FSEL"]) == pytest.approx((64, 68), rel=MARGIN)


@pytest.mark.parametrize(("causal", "compiled"), [(0, 719), (1, 587 + 90)])
def test_first_block_of_a_tile_against_the_compiled_one(causal: int, compiled: int) -> None:
    """Masks included; where items are handed out one by one, about 90 instructions find the tile's place."""
    program = compile_kernel(
        "attention", machine("h100"), {"batch": 1, "heads_q": 1, "seqlen_q": 2048, "causal": causal}
    )
    end = program.roles[1].entry
    tile = next(row.target for row in program.instructions[:end] if row.op == "NEXT")
    loop = next(row.target for row in program.instructions[:end] if row.op == "LOOP")
    assert tile is not None
    assert loop is not None
    assert loop - tile == pytest.approx(compiled, rel=MARGIN)


def test_the_producer_turns_a_block_of_v_by_pairs_of_elements() -> None:
    """Each of four warps: 16 bytes a lane at a time; two byte permutes for two registers of pairs."""
    sizes = {"batch": 1, "heads_q": 1, "seqlen_q": 512, "head_dim": 128, "dtype": "fp8_e4m3"}
    program = compile_kernel("attention", machine("h100"), sizes)
    code = program.instructions[program.roles[-1].entry :]
    last = next(pc for pc, row in enumerate(code) if row.op == "LOOP")
    first = (code[last].target or 0) - program.roles[-1].entry
    mix = Counter(row.op for row in code[first:last])
    moves = 224 * 128 // (4 * 512)
    assert (mix["LDSM"], mix["PRMT"], mix["STSM"]) == (moves, 4 * moves, moves)
