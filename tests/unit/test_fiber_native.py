"""Does the FIBER-native GEMM of H100 compute right numbers, and is every missing bind found?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agreement import differences
from fiber_kernels import SMALL, bind_mutants, checked, compiled, one_sm, run, tiles, without
from heddle import sim
from heddle.errors import UserError
from heddle.interp.check import check
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import parse_program as parse_warp
from heddle.ir.warp_text import print_program as print_warp
from heddle.kernels.gemm.sm90_fiber_shape import FiberGemm
from heddle.machine import machine
from heddle.metrics.registers import register_profile
from heddle.passes import compile_program
from native_mutants import rejected

ONE_TILE = FiberGemm(m=128, n=64, k=128, tile_n=64, stages=2)
ONE_GROUP = FiberGemm(m=128, n=64, k=192, tile_n=64, stages=2, groups=1)
TWO_PARTS = FiberGemm(m=128, n=320, k=192, tile_n=160, stages=2)
UNALIGNED = FiberGemm(m=70, n=150, k=192, tile_n=160, stages=2)


def bind_of(program: WarpProgram, op: str) -> int:
    """Return the place of the first bind in front of an opcode."""
    rows = program.instructions
    return next(pc for pc, row in enumerate(rows) if row.bind is not None and rows[pc + 1].op == op)


@pytest.mark.parametrize(
    "problem", [SMALL, ONE_GROUP, TWO_PARTS, UNALIGNED], ids=["two groups", "one group", "two parts", "no bulk stores"]
)
def test_numbers_are_right_and_no_hazard_is_found(problem: FiberGemm) -> None:
    report = checked(compiled(problem), problem)
    assert report.ok, report.lines()


def test_the_engines_agree_on_every_stall_and_bit() -> None:
    ours, plain = run(compiled(ONE_GROUP)), run(compiled(ONE_GROUP), "reference")
    assert (ours.cycles, ours.fiber) == (plain.cycles, plain.fiber)
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


def test_a_pair_of_ctas_that_share_b_computes_right_numbers_and_loads_b_once() -> None:
    device = machine("h100+fiber").replace(sms=2)
    alone = FiberGemm(m=512, n=128, k=192, fiber_threads=2)
    pair = dataclasses.replace(alone, cluster=2)
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((pair.m, pair.k)), rng.standard_normal((pair.n, pair.k))
    loaded = {}
    for problem in (alone, pair):
        program = compile_program(tiles(problem), device)
        result = sim.simulate(program, device, mode="chip", log="all", fast_forward=False)
        assert check(program, device, {"A": a, "B": b}, {"C": a @ b.T}, result=result).ok
        loaded[problem.cluster] = result.l2_read_bytes
    slices = 2 * (alone.m // alone.tile_m) * 128 * 192  # of B, one for each tile of C
    assert loaded[1] - loaded[2] == slices // 2


def test_fast_forward_skips_most_of_a_long_sum_and_changes_nothing() -> None:
    program, device = compiled(FiberGemm(m=256, n=256, k=8192)), machine("h100+fiber")
    plain, skipping = (sim.simulate(program, device, fast_forward=on) for on in (False, True))
    assert skipping.fast_forwarded_cycles > 0.5 * skipping.cycles
    assert not differences(plain, skipping)


def test_every_datum_is_given_back_at_the_end() -> None:
    assert run(compiled()).warnings == []


def test_two_groups_keep_the_tensor_cores_busy_where_l2_does_not_limit() -> None:
    fast = one_sm().replace(l2_bytes_per_cycle_per_sm=512.0, l2_port_bytes_per_cycle=512.0)
    deep = FiberGemm(m=256, n=256, k=1024)
    two, one = (
        sim.simulate(compiled(problem), fast, mode="chip") for problem in (deep, dataclasses.replace(deep, groups=1))
    )
    assert two.tensor_busy_cycles / two.cycles > 0.9
    assert one.tensor_busy_cycles / one.cycles < 0.8


def test_the_program_survives_its_text() -> None:
    program = tiles()
    assert parse_program(print_program(program)) == program


def test_the_warp_program_survives_its_text() -> None:
    program = compiled()
    assert parse_warp(print_warp(program)) == program


def test_matrix_instructions_are_lockstep_groups_with_fragments_from_the_pool() -> None:
    products = [row for row in compiled().instructions if row.op == "WMMA"]
    assert all(row.group and row.form == "rs" and row.src[0].place is not None for row in products)


def test_only_the_last_step_of_a_chain_writes_the_pool() -> None:
    into_pool = [r.dst is not None and r.dst.place is not None for r in compiled().instructions if r.op == "WMMA"]
    assert into_pool == ([False] * 7 + [True]) * SMALL.groups


def test_nothing_stands_between_a_bind_and_its_partner() -> None:
    rows = compiled().instructions
    partners = {rows[pc + 1].op for pc, row in enumerate(rows) if row.op == "DEPBAR.BIND"}
    assert partners == {"WMMA", "LDSM", "F2FP", "MOV"}


def test_the_verifier_rejects_every_program_with_a_bind_less() -> None:
    mutants = list(bind_mutants(compiled(ONE_TILE)))
    survivors = [name for name, mutant in mutants if not rejected(mutant, one_sm())]
    assert len(mutants) > 20
    assert survivors == []


def test_numbers_in_the_engines_order_show_a_fragment_that_is_not_held() -> None:
    program = compiled()
    pc = bind_of(program, "LDSM")
    report = checked(without(program, pc, None))
    hazard = next(h for h in report.hazards if h.kind == "stale read")
    assert len(set(hazard.lines)) == 2
    assert "LDSM" in str(hazard)


def test_a_depth_of_one_step_is_an_error() -> None:
    with pytest.raises(UserError, match="more than 64"):
        FiberGemm(m=SMALL.m, n=SMALL.n, k=64).items()


def test_live_registers_of_a_role_are_its_own_and_the_pool_is_counted_once() -> None:
    program = compiled(ONE_TILE)
    profile = register_profile(program)
    assert program.fiber is not None
    assert profile.pool == program.fiber.pool_limit - program.fiber.pool_first > 0
    assert all(profile.peak_of(role) <= most for role, most in profile.allocated.items())
