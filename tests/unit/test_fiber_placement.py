"""Does every pool tensor and role get registers of its own that its wefts can write, and is a wrong place found?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from fiber_kernels import compiled, one_sm, tiles
from heddle.errors import InternalError, UserError
from heddle.ir.warp_fiber import OWN, WINDOW
from heddle.kernels.gemm.sm90_fiber import gemm_sm90_fiber
from heddle.kernels.gemm.sm90_fiber_shape import FiberGemm
from heddle.passes import run_passes
from heddle.passes.draft import DraftProgram
from heddle.passes.manager import FIBER_PASSES
from heddle.passes.place_pool import FreeList
from heddle.passes.verify_pool import VerifyPool


def placed() -> DraftProgram:
    """Return the small GEMM after the placement."""
    current: object = tiles()
    for name, step in FIBER_PASSES:
        current = step.run(current, one_sm())
        if name == "place_pool":
            assert isinstance(current, DraftProgram)
            return current
    raise AssertionError("no placement")


def moved(program: DraftProgram, tensor: str, to: int) -> DraftProgram:
    """Return the program with a pool tensor at another register, in all roles."""
    ids = {o.value.id for r in program.roles for d in r.code for o in d.dst if o.value.tile == tensor}
    roles = []
    for role in program.roles:
        registers: Mapping[int, int] = {**role.registers, **dict.fromkeys(ids, to)}
        roles.append(dataclasses.replace(role, registers=registers))
    return dataclasses.replace(program, roles=tuple(roles))


def test_the_lowest_aligned_range_is_taken() -> None:
    free = FreeList([(3, 8), (10, 32)])
    assert free.take(8, 8) == 16
    assert free.take(4, 4) == 4
    assert free.ranges == [(3, 4), (10, 16), (24, 32)]


def test_a_full_list_gives_nothing() -> None:
    assert FreeList([(0, 7)]).take(8, 8) is None


def test_registers_that_are_given_back_join_their_neighbours() -> None:
    free = FreeList([(0, 4), (8, 12)])
    free.give(4, 4)
    assert free.ranges == [(0, 12)]


def test_the_pool_is_one_range_between_the_own_registers_of_both_windows() -> None:
    program = compiled()
    assert program.fiber is not None
    named = {r.index for row in program.instructions for r in row.src if r.place == OWN}
    assert named <= set(range(program.fiber.pool_first, program.fiber.pool_limit))
    assert program.fiber.pool_first < WINDOW < program.fiber.pool_limit


def test_the_placement_of_the_compiler_is_accepted() -> None:
    program = placed()
    assert VerifyPool().run(program, one_sm()) is program


@pytest.mark.parametrize(
    ("to", "text"),
    [(0, "belongs to"), (252, "no name reaches"), (400, "not in its window"), (270, "begins at register")],
)
def test_a_wrong_place_is_found(to: int, text: str) -> None:
    with pytest.raises(InternalError, match=text):
        VerifyPool().run(moved(placed(), "a_0", to), one_sm())


class HandedOverWhole(FiberGemm):
    """A wide tile whose columns do not pass through the pool in two parts."""

    parts = 1  # type: ignore[assignment]


def test_tiles_that_do_not_fit_a_window_are_an_error_that_names_it() -> None:
    large = gemm_sm90_fiber.build("sm_90", HandedOverWhole(m=64, n=256, k=128, tile_n=256, groups=1))
    with pytest.raises(UserError, match="pool tensor total_0 needs 128 registers of each subpartition in window 0"):
        run_passes(large, one_sm())
