"""Does the FIBER-native GEMM of A100 read B across subpartitions by the rules, and compute right numbers?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fiber_a100 import SMALL, checked, compiled, one_sm, run, tiles
from fiber_kernels import bind_mutants, without
from heddle import sim
from heddle.errors import UserError
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.warp_fiber import OWN, SUBPARTITIONS
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm80_fiber import TILE_K, FiberGemm80
from heddle.kernels.gemm.sm80_fiber_config import SM80_FIBER, FiberGemm80Config
from heddle.lang import Builder, kernel
from heddle.passes.verify_channels import VerifyChannels
from heddle.study.rank import least_cycles
from native_mutants import rejected

ODD = FiberGemm80(m=72, n=136, k=104, tile_m=64, tile_n=128)


@pytest.mark.parametrize("problem", [SMALL, ODD], ids=["one tile", "odd sizes"])
def test_numbers_are_right_and_no_hazard_is_found(problem: FiberGemm80) -> None:
    report = checked(compiled(problem), problem)
    assert report.ok, report.lines()


def test_the_engines_agree_on_every_stall_and_bit() -> None:
    ours, plain = run(compiled()), run(compiled(), "reference")
    assert (ours.cycles, ours.fiber) == (plain.cycles, plain.fiber)
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


def test_a_is_read_in_the_own_subpartition_and_b_in_all_four() -> None:
    products = [row for row in compiled().instructions if row.op == "WMMA"]
    assert {row.src[0].place for row in products} == {OWN}
    assert {row.src[1].place for row in products} == set(range(SUBPARTITIONS))


def test_a_fragment_of_b_is_held_for_four_readers_and_given_back_by_each() -> None:
    binds = [row.bind for row in compiled().instructions if row.bind is not None]
    assert {bind.readers for bind in binds if bind.hold} == {(), tuple(range(SUBPARTITIONS))}
    assert {(bind.consume, bind.scoped) for bind in binds if bind.consume} == {((0, 1), (1,))}


def test_each_fragment_is_loaded_once() -> None:
    loads = [row for row in compiled().instructions if row.op == "LDSM"]
    blocks = 2  # the loop and what is left of the last stages
    assert len(loads) * 512 * SUBPARTITIONS == blocks * (SMALL.tile_m + SMALL.tile_n) * TILE_K * 2


def test_the_verifier_rejects_every_program_with_a_bind_less() -> None:
    mutants = list(bind_mutants(compiled()))
    survivors = [name for name, mutant in mutants if not rejected(mutant, one_sm())]
    assert len(mutants) > 20
    assert survivors == []


def test_b_that_is_given_back_for_all_readers_at_once_is_found() -> None:
    program = compiled()
    pc = next(pc for pc, row in enumerate(program.instructions) if row.bind is not None and row.bind.scoped)
    bind = program.instructions[pc].bind
    assert bind is not None
    plain = without(program, pc, dataclasses.replace(bind, scoped=()))
    with pytest.raises(UserError, match="which is not held for its subpartition"):
        VerifyChannels().run(plain, one_sm())


def test_the_program_survives_its_text() -> None:
    assert parse_program(print_program(tiles())) == tiles()


def test_one_weft_a_subpartition_keeps_the_tensor_core_busy() -> None:
    result = sim.simulate(compiled(FiberGemm80(m=128, n=128, k=2048)), one_sm(), mode="chip")
    assert result.tensor_busy_cycles / result.cycles > 0.85


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "stages", "text"),
    [
        (192, 192, 2, "needs 312 registers in one window"),
        (64, 320, 2, "tile_n is up to 256"),
        (96, 64, 2, "multiples of 64"),
        (128, 128, 6, "stages must be 2 to 5"),
    ],
)
def test_a_tile_that_does_not_fit_is_refused_with_what_does(tile_m: int, tile_n: int, stages: int, text: str) -> None:
    problem = GemmProblem(m=512, n=512, k=512, dtype="fp16")
    config = FiberGemm80Config(tile_m=tile_m, tile_n=tile_n, stages=stages)
    with pytest.raises(UserError, match=text):
        SM80_FIBER.build(problem, config, one_sm(), {})


def test_the_least_time_of_its_products_is_that_of_the_tensor_cores() -> None:
    assert least_cycles(tiles(), one_sm()) >= 2 * SMALL.m * SMALL.n * SMALL.k / one_sm().tensor_flops_per_cycle


def build(read_by: str, second: bool) -> None:
    """Build a product of two pool tensors, one read as said, as second operand or as first."""

    @kernel
    def product(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        a, b = k.pool("a", (64, 64), "fp16"), k.pool("b", (64, 64), "fp16", read_by=read_by)  # type: ignore[arg-type]
        total = k.registers("total", (64, 64), "fp32", warps=(4, 1))
        k.set_fiber_num(begin=1, load=4, multiply=4)
        with k.role("begin", registers=8):
            pass
        with k.role("load", registers=32):
            for tensor in (a, b):
                k.fill(tensor[0])
                k.set_busy_bit(tensor[0], "full")
        with k.role("multiply", registers=64):
            k.mma(total, a[0], b[0], accumulate=False)
            if not second:
                k.mma(total, b[0], b[0], accumulate=False)
            for tensor in (a, b):
                k.set_busy_bit(tensor[0], "empty")

    product.build("sm_80")


@pytest.mark.parametrize(
    ("read_by", "second", "text"),
    [
        ("own", True, "it is a pool tensor that all subpartitions read"),
        ("all", False, "Mma reads it as rows of its own"),
        ("some", True, "reader"),
    ],
)
def test_a_tensor_that_is_not_read_as_declared_is_an_error(read_by: str, second: bool, text: str) -> None:
    with pytest.raises(UserError, match=text):
        build(read_by, second)
