"""Do the FIBER-native kernels of B200 compute right numbers, with products, bits and tokens as they should be?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from heddle import sim
from heddle.errors import UserError
from heddle.ir.warp import RZ, Instruction, WarpProgram
from heddle.ir.warp_fiber import OWN, TENSOR
from heddle.kernels.attention.forward.sm100_fiber_config import work_items
from heddle.kernels.attention.forward.sm100_fiber_native import build, candidates
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.gemm.sm100_fiber import SLOTS, gemm_sm100_fiber
from heddle.machine import machine
from heddle.passes import compile_program
from native_b200 import (
    ATTENTION,
    CAUSAL,
    GEMM,
    WIDE,
    attention,
    attention_checked,
    gemm,
    gemm_checked,
    one_sm,
    run,
)
from native_mutants import mutants, rejected

ONE_TILE = dataclasses.replace(GEMM, m=128, n=64)
LONG = dataclasses.replace(ATTENTION, seqlen_q=256, seqlen_kv=640)
QUICK = 40
"""Every so many of the mutants."""
STEP_CYCLES = 2048
"""Tensor time of a step: four products of 128 x 128 x 128 at 8192 FLOP a cycle."""


def bound(program: WarpProgram, op: str) -> list[tuple[Instruction, Instruction]]:
    """Return each bind in front of an opcode, with its partner."""
    rows = program.instructions
    return [(rows[pc], rows[pc + 1]) for pc, row in enumerate(rows) if row.bind and rows[pc + 1].op == op]


def test_gemm_is_right_and_without_hazards() -> None:
    report = gemm_checked(gemm())
    assert report.ok, report.lines()


@pytest.mark.parametrize("problem", [CAUSAL, WIDE], ids=["causal, shared keys", "wide head"])
def test_attention_is_right_and_without_hazards(problem: AttentionProblem) -> None:
    report = attention_checked(attention(problem), problem)
    assert report.ok, report.lines()


@pytest.mark.slow
def test_an_item_begun_before_the_last_one_ends_is_right() -> None:
    report = attention_checked(attention())
    assert report.ok, report.lines()


@pytest.mark.slow
def test_two_parts_of_a_tile_exchange_their_maxima() -> None:
    config = dataclasses.replace(candidates(ATTENTION, one_sm())[0], parts=2, chunk=8, exp_period=8)
    report = attention_checked(attention(ATTENTION, config))
    assert report.ok, report.lines()


def test_the_engines_agree_on_every_stall_and_bit() -> None:
    ours, plain = run(gemm(ONE_TILE)), run(gemm(ONE_TILE), "reference")
    assert (ours.cycles, ours.fiber) == (plain.cycles, plain.fiber)
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


def test_nothing_is_left_over() -> None:
    assert run(attention(WIDE)).warnings == []


def test_products_are_lockstep_groups_with_fragments_from_the_pool() -> None:
    products = [row for row in attention(WIDE).instructions if row.op == "WMMA.TM"]
    assert {row.form for row in products} == {"rs"}
    assert all(row.group and row.src[0].place == OWN and row.src[1].index == RZ for row in products)
    assert all(row.dst is not None and row.dst.place == TENSOR for row in products)


def test_a_product_that_overwrites_reads_no_accumulator_in_its_first_step_only() -> None:
    steps = [len(row.src) > 2 for row in gemm(ONE_TILE).instructions if row.op == "WMMA.TM"]
    of_a_place = len(steps) // SLOTS
    assert steps == ([True] + [False] * (of_a_place - 1)) * SLOTS


def test_scores_are_given_back_by_their_second_reading() -> None:
    rows = attention(WIDE).instructions
    given_back = [partner for bind, partner in bound(attention(WIDE), "LDTM") if bind.bind and bind.bind.consume]
    softmax = [row for row in rows if row.op == "LDTM" and row.src[0].index >= 8]  # O lies in front of S
    assert 0 < len(given_back) < len(softmax)
    assert all(row.src[0].place == TENSOR for row in given_back)


def test_the_last_step_of_the_scores_holds_their_columns() -> None:
    held = [partner for bind, partner in bound(attention(WIDE), "WMMA.TM") if bind.bind and bind.bind.hold]
    assert {row.dst.index for row in held if row.dst is not None} == {8, 10}  # both places of S, none of O


def test_the_verifier_rejects_mutants_of_the_gemm() -> None:
    chosen = [mutant for mutant in mutants(gemm()) if "SYNCS" not in mutant[0]][::5]
    assert len(chosen) > 15
    assert [name for name, program in chosen if not rejected(program, one_sm())] == []


def test_the_verifier_rejects_mutants_of_attention() -> None:
    every = [mutant for mutant in mutants(attention(WIDE)) if "SYNCS" not in mutant[0]]
    tokens = [mutant for mutant in every if "exchanged" in mutant[0] or "(MOV" in mutant[0]]
    assert [name for name, program in (*tokens[::8], *every[:: QUICK * 2]) if not rejected(program, one_sm())] == []


@pytest.mark.slow
def test_the_tensor_cores_are_busy_nine_tenths_of_a_long_sequence() -> None:
    longer = dataclasses.replace(LONG, seqlen_kv=2 * LONG.seqlen_kv)
    short, long = (sim.simulate(attention(problem), one_sm(), mode="chip") for problem in (LONG, longer))
    steps = LONG.seqlen_kv // 128
    assert STEP_CYCLES <= (long.cycles - short.cycles) / steps < STEP_CYCLES / 0.9


@pytest.mark.slow
def test_exponentials_on_one_unit_alone_cost_a_tenth() -> None:
    config = candidates(LONG, one_sm())[0]
    mixed, plain = (
        sim.simulate(attention(LONG, dataclasses.replace(config, exp_share=share)), one_sm(), mode="chip").cycles
        for share in (config.exp_share, 0)
    )
    assert plain > 1.05 * mixed


@pytest.mark.parametrize(("heads_kv", "most"), [(32, 1.13), (4, 1.06)])
def test_causal_items_of_several_sections_are_dealt_out_evenly(heads_kv: int, most: float) -> None:
    problem = AttentionProblem(
        batch=1, heads_q=32, heads_kv=heads_kv, seqlen_q=4096, seqlen_kv=4096, head_dim=128, causal=True, dtype="fp16"
    )
    gpu = machine("b200+fiber")
    blocks = np.array(work_items(problem, candidates(problem, gpu)[0], gpu.sms)["more"]) + 1
    sums = np.bincount(np.arange(len(blocks)) % gpu.sms, weights=blocks)
    assert sums.max() < most * sums.mean()


def test_a_configuration_that_does_not_fit_is_an_error() -> None:
    config = dataclasses.replace(candidates(ATTENTION, one_sm())[0], stages=3)
    with pytest.raises(UserError, match="stages must be 2 to 2"):
        build(ATTENTION, config, one_sm(), {})


def test_a_tile_of_tensor_memory_with_stages_is_an_error() -> None:
    program = gemm_sm100_fiber.build("sm_100", ONE_TILE)
    staged = tuple(dataclasses.replace(tile, stages=2) for tile in program.tensor_memory)
    with pytest.raises(UserError, match="a tile has one place"):
        compile_program(dataclasses.replace(program, tensor_memory=staged), one_sm())


def test_a_depth_that_is_no_whole_number_of_rounds_is_an_error() -> None:
    with pytest.raises(UserError, match="2 blocks of 64 at a time"):
        dataclasses.replace(ONE_TILE, k=320).items()
