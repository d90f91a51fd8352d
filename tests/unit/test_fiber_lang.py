"""Is every misuse of pool tensors, wefts and busy bits reported at its line, with what is allowed?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heddle.errors import UserError
from heddle.ir import tile
from heddle.lang import Builder, kernel

Body = Callable[[Builder], None]


def build(body: Body) -> tile.TileProgram:
    """Build a kernel with one work item from the code of its body."""

    @kernel
    def sample(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        body(k)

    return sample.build("sm_90")


def fails(text: str, body: Body) -> UserError:
    """Build and expect an error that contains a text."""
    with pytest.raises(UserError, match=text) as caught:
        build(body)
    return caught.value


def pair(
    k: Builder,
    *,
    full: bool = True,
    empty: bool = True,
    stated_by: str = "make",
    roles: tuple[str, str] = ("make", "use"),
) -> None:
    """A role that fills a pool tensor and one that copies it."""
    s, own = k.pool("s", (64, 8), "fp32"), k.registers("own", (64, 8), "fp32", warps=(4, 1))
    k.set_fiber_num(start=1, make=4, use=4)
    with k.role("start", registers=8):
        pass
    with k.role("make", window=0, registers=16):
        k.fill(s[0])
        if roles[0] == "both":
            k.elementwise("add", s[0], s[0], s[0])
        if full and stated_by == "make":
            k.set_busy_bit(s[0], "full")
    with k.role("use", window=1, registers=16):
        if roles[1] == "both":
            k.fill(s[0])
        k.elementwise("copy", own, s[0])
        if stated_by == "use":
            k.set_busy_bit(s[0], "full")
        if empty:
            k.set_busy_bit(s[0], "empty")


def test_a_pool_tensor_makes_a_kernel_of_mode_fiber_with_aligned_roles() -> None:
    program = build(pair)
    assert program.mode == "fiber"
    assert [(role.name, role.warps) for role in program.roles] == [("start", 1), ("idle_1", 3), ("make", 4), ("use", 4)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"full": False}, "'make' never states pool tensor 's' full"),
        ({"empty": False}, "'use' never states pool tensor 's' empty"),
        ({"stated_by": "use"}, "'use' states pool tensor 's' full; only role 'make' can"),
        ({"roles": ("make", "both")}, "produced by roles 'make', 'use'"),
        ({"roles": ("both", "use")}, "read by roles 'make', 'use'"),
    ],
)
def test_a_channel_has_one_producer_and_one_consumer_that_state_it(options: dict[str, Any], text: str) -> None:
    error = fails(text, lambda k: pair(k, **options))
    assert error.where is not None
    assert error.where.file == __file__


def test_a_stage_is_a_python_integer() -> None:
    def body(k: Builder) -> None:
        s = k.pool("s", (64, 8), "fp32", stages=2)
        k.set_fiber_num(start=1)
        with k.role("start", registers=8):
            for i in k.range(4):
                k.fill(s[i])  # type: ignore[index]

    fails("known|Python integer", body)


def test_stages_go_round() -> None:
    builder = Builder("sample", "sm_90")
    s = builder.pool("s", (64, 8), "fp32", stages=2)
    assert s[3].tile.name == "s_1"


@pytest.mark.parametrize(
    ("wefts", "text"),
    [({"start": 4}, "the first role has one"), ({"start": 1, "many": 5}, "up to 4"), ({"start": 0}, "1 or more")],
)
def test_wefts_of_roles(wefts: dict[str, int], text: str) -> None:
    def body(k: Builder) -> None:
        k.set_fiber_num(**wefts)
        for name in wefts:
            with k.role(name, registers=8):
                pass

    fails(text, body)


def test_roles_keep_the_order_of_set_fiber_num() -> None:
    def body(k: Builder) -> None:
        k.set_fiber_num(first=1, second=1)
        with k.role("second", registers=8):
            pass

    fails("stands before 'first'", body)


def test_a_role_without_code_is_an_error() -> None:
    def body(k: Builder) -> None:
        k.set_fiber_num(first=1, second=1)
        with k.role("first", registers=8):
            pass

    fails("spawns 'second', which has no code", body)


def test_pool_tensors_need_set_fiber_num() -> None:
    def body(k: Builder) -> None:
        k.pool("s", (64, 8), "fp32")
        with k.role("only", warps=4, registers=8):
            pass

    fails("call k.set_fiber_num first", body)


def test_a_window_is_one_of_two() -> None:
    def body(k: Builder) -> None:
        k.set_fiber_num(start=1)
        with k.role("start", window=2, registers=8):
            pass

    fails("window 2; allowed: 0, 1", body)


def pooled_vector(k: Builder, **division: Any) -> None:
    k.pool("v", (1, 64), "fp32", spread="columns", **division)


@pytest.mark.parametrize(
    "division", [{"read_by": "own", "wefts": (1, 4)}, {"read_by": "all", "wefts": (2, 1)}], ids=str
)
def test_a_row_vector_in_the_pool_is_divided_among_four_wefts_or_whole_with_each(division: dict[str, Any]) -> None:
    fails("'v' is spread by columns", lambda k: pooled_vector(k, **division))


def test_a_row_vector_in_the_pool_has_quarters_of_its_columns() -> None:
    def body(k: Builder) -> None:
        vector = k.pool("v", (1, 64), "fp32", read_by="all", wefts=(1, 4), spread="columns")[0]
        whole = k.registers("whole", (64, 64), "fp32", warps=(4, 1))
        k.set_fiber_num(start=1, use=4)
        with k.role("start", registers=8):
            pass
        with k.role("use", registers=40):
            k.fill(whole)
            k.elementwise("sub", whole, whole, vector.quarter(0))

    fails("a source is 1 x 16, expected 1 x 64", body)
