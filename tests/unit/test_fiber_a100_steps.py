"""Are GEMM and W4A16 of A100 right on machines with some of FIBER's features, and is what they lack not used?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.errors import UserError
from heddle.ir.tile import Mma
from heddle.ir.tile_walk import Place, walk_body
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import OWN
from heddle.kernels.registry import find_kernel
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes.pipeline_fragments import PipelineFragments
from heddle.passes.pipelined import PipelinedMma
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate, mutants, rejected

FEATURES = {step.name: step for step in STEPS}
GEMM: dict[str, Any] = {"m": 72, "n": 136, "k": 104, "tile_m": 64, "tile_n": 128, "stages": 3}
NARROW: dict[str, Any] = {"m": 300, "n": 100, "k": 424, "tile_m": 256, "tile_n": 96, "stages": 2, "dtype": "bf16"}
GATED: dict[str, Any] = {"m": 72, "n": 144, "k": 136, "epilogue": "silu_mul", "tile_m": 64, "tile_n": 64, "stages": 2}
W4: dict[str, Any] = {"m": 70, "n": 136, "k": 448, "tile_n": 128, "stages": 2}
CASES = [
    pytest.param("gemm", GEMM, id="odd sizes"),
    pytest.param("gemm", NARROW, id="96 columns", marks=pytest.mark.slow),
    pytest.param("gemm", GATED, id="gate", marks=pytest.mark.slow),
    pytest.param("w4a16", {**W4, "k": 512, "tile_m": 64}, id="awq"),
    pytest.param("w4a16", {**W4, "tile_m": 64, "scheme": "aqlm_1x16", "steps": 2}, id="aqlm_1x16, two steps"),
    pytest.param("w4a16", {**W4, "tile_m": 96, "scheme": "aqlm_2x8"}, id="aqlm_2x8", marks=pytest.mark.slow),
]
SMALL: dict[str, dict[str, Any]] = {
    "gemm": {"m": 64, "n": 64, "k": 256, "tile_m": 64, "tile_n": 64, "stages": 2},
    "w4a16": {"m": 64, "n": 64, "k": 512, "tile_m": 64, "tile_n": 64, "stages": 2},
}
QUICK = 6
"""In the quick test every so many of the mutants that the verifier has to reject."""
ACCEPTED = 0.05


def asked(name: str, params: dict[str, Any], step: str = "+DP +FS") -> Request:
    """Ask for a problem on one SM with the features of a step."""
    return request(name, FEATURES[step].machine(machine("a100")).replace(sms=1), mode="fiber", texts=params)


def program(name: str, params: dict[str, Any]) -> WarpProgram:
    """Return the warp program."""
    return compiled(asked(name, params))


@pytest.mark.parametrize(("name", "params"), CASES)
def test_numbers_are_right_with_operands_in_each_subpartition(name: str, params: dict[str, Any]) -> None:
    row = check(asked(name, params))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("name", SMALL)
def test_operands_are_read_in_the_own_subpartition_and_nothing_starts_together(name: str) -> None:
    products = [row for row in program(name, SMALL[name]).instructions if row.op == "WMMA"]
    assert {operand.place for row in products for operand in row.src[:2]} == {OWN}
    assert not any(row.group for row in products)


def test_a_weight_is_made_once_for_the_sm() -> None:
    made = [row for row in program("w4a16", SMALL["w4a16"]).instructions if row.op == "HMUL2"]
    weights_of_an_instruction, blocks = 2 * 32, 4  # two blocks of a group, in the loop and behind it
    assert len(made) * weights_of_an_instruction == 64 // 4 * 64 * blocks


@pytest.mark.parametrize("name", SMALL)
def test_the_verifier_rejects_mutants_of_the_bits(name: str) -> None:
    found = [one for one in mutants(program(name, SMALL[name])) if "consume" in one[0] or "hold" in one[0]]
    survivors = [text for text, mutant in found[::QUICK] if not rejected(mutant, asked(name, SMALL[name]).machine)]
    assert len(found) > 20
    assert survivors == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", SMALL)
def test_mutants_are_found(name: str) -> None:
    request_of = asked(name, SMALL[name])
    fates = {text: fate(mutant, request_of) for text, mutant in mutants(compiled(request_of))}
    left = [text for text, found in fates.items() if not found]
    assert len(left) <= ACCEPTED * len(fates), left


def test_a_product_of_rows_and_columns_that_the_weft_does_not_have_is_an_error() -> None:
    @kernel
    def product(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        a, b = (k.pool(name, (64, 16), "fp16", spread="operand")[0] for name in "ab")
        shared = k.shared("s", (64, 16), "fp16")
        total = k.registers("total", (64, 64), "fp32", warps=(4, 1))
        k.set_fiber_num(begin=1, load=4, multiply=4)
        with k.role("begin", registers=8):
            pass
        with k.role("load", registers=32):
            for tensor in (a, b):
                k.load(tensor, shared[:])
                k.set_busy_bit(tensor, "full")
        with k.role("multiply", registers=64):
            k.mma(total, a, b, accumulate=False)
            for tensor in (a, b):
                k.set_busy_bit(tensor, "empty")

    from heddle.passes import compile_program

    with pytest.raises(UserError, match="a weft has 16 x 64 of total"):
        compile_program(product.build("sm_80"), asked("gemm", GEMM).machine)


WITHOUT_BITS = ("+DP literal", "+DP")
PHASED: dict[str, Any] = {"m": 72, "n": 136, "k": 200, "tile_m": 64, "tile_n": 64, "tile_k": 32, "stages": 3}
ROTATED: dict[str, Any] = {
    **{"m": 200, "n": 256, "k": 200, "epilogue": "rope", "head_dim": 64, "heads_q": 2, "heads_kv": 1},
    **{"tile_m": 128, "tile_n": 64, "tile_k": 64},
}
W4_PHASED: dict[str, Any] = {"m": 70, "n": 136, "tile_m": 64, "tile_n": 128, "stages": 3, "warps": 4}
PHASED_CASES = [
    pytest.param("w4a16", {**W4_PHASED, "k": 512}, id="awq"),
    pytest.param("w4a16", {**W4_PHASED, "k": 448, "scheme": "aqlm_1x16"}, id="aqlm_1x16", marks=pytest.mark.slow),
    pytest.param("w4a16", {**W4_PHASED, "k": 448, "scheme": "aqlm_2x8"}, id="aqlm_2x8", marks=pytest.mark.slow),
    pytest.param("gemm", PHASED, id="odd sizes"),
    pytest.param("gemm", {**GATED, "tile_k": 64}, id="gate", marks=pytest.mark.slow),
    pytest.param("gemm", ROTATED, id="rope", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "params"), PHASED_CASES)
def test_numbers_are_right_without_bits(name: str, params: dict[str, Any]) -> None:
    row = check(asked(name, params, "+DP literal"))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_without_bits_products_are_mma_sync_and_no_weft_reads_registers_of_another() -> None:
    one, other = (compiled(asked("gemm", PHASED, step)) for step in WITHOUT_BITS)
    assert one.instructions == other.instructions
    assert not [row for row in one.instructions if row.op == "WMMA" or row.bind is not None]
    places = {r.place for row in one.instructions for r in row.src if r is not None}
    assert places <= {None}


def test_fragments_of_the_next_slice_are_loaded_beside_the_last_products_of_this_one() -> None:
    question = asked("gemm", PHASED, "+DP")
    tiles = find_kernel("gemm").build(question.machine, question.params, None, "fiber")
    role = PipelineFragments().run(tiles, question.machine).roles[-1]
    products = [op for op, _ in walk_body(role.body, Place(role)) if isinstance(op, Mma | PipelinedMma)]
    ahead = [isinstance(op, PipelinedMma) and op.prefetch for op in products]
    assert ahead == [True] * (len(ahead) - 1) + [False]


def test_codebooks_in_shared_memory_are_copied_once_for_all_tiles() -> None:
    params = {**W4_PHASED, "k": 448, "scheme": "aqlm_2x8"}
    program = compiled(asked("w4a16", params, "+DP literal"))
    multiply = next(role for role in program.roles if role.name == "multiply")
    copies = [pc for pc, row in enumerate(program.instructions) if row.op == "LDGSTS" and pc >= multiply.entry]
    first_product = next(pc for pc, row in enumerate(program.instructions) if row.op == "HMMA" and pc > multiply.entry)
    assert copies
    assert max(copies) < first_product


BARRIERS: dict[str, dict[str, Any]] = {
    "gemm": {**PHASED, "m": 64, "n": 192, "stages": 2},
    "w4a16": {**W4_PHASED, "m": 64, "n": 256, "k": 512},
}


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", BARRIERS)
def test_mutants_of_barriers_are_found(name: str) -> None:
    request_of = asked(name, BARRIERS[name], "+DP literal")
    fates = {text: fate(mutant, request_of) for text, mutant in mutants(compiled(request_of))}
    left = [text for text, found in fates.items() if not found]
    assert len(left) <= ACCEPTED * len(fates), left
