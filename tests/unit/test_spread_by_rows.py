"""Are register tiles that are spread by rows kept apart from what knows only matrix fragments?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.lang import Builder, RegisterHandle, kernel
from heddle.machine import machine

Body = Callable[[Builder, RegisterHandle], None]


def built(body: Body, cols: int = 256, rows: int = 16) -> TileProgram:
    """A kernel of four warps that fills a tile spread by rows and uses it."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        tile = k.registers("x", (rows, cols), "fp32", warps=(4, 1), spread="rows")
        with k.role("row", warps=4, registers=64):
            k.fill(tile)
            body(k, tile)

    return small.build("sm_90")


def _masked(k: Builder, tile: RegisterHandle) -> None:
    k.mask(tile, limit=3)


def _shared(k: Builder, tile: RegisterHandle) -> None:
    k.store(k.shared("s", (16, 256), "fp32", swizzle_bytes=0)[:], tile)


def _mixed(k: Builder, tile: RegisterHandle) -> None:
    other = k.registers("y", (16, 256), "fp32", warps=(4, 1))
    k.elementwise("copy", other, tile)


@pytest.mark.parametrize(
    ("body", "text"),
    [(_masked, "Mask does not take it"), (_shared, "StoreShared does not take it"), (_mixed, "no lane has both")],
)
def test_what_knows_only_fragments_is_refused_at_its_line(body: Body, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        built(body)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_columns_come_in_whole_blocks() -> None:
    program = built(lambda k, tile: k.elementwise("neg", tile, tile), cols=128)
    with pytest.raises(UserError, match="cannot be spread by rows"):
        pipeline.warp_program(program, machine("h100"))


@pytest.mark.parametrize(("lanes", "text"), [(16, "different numbers of lanes"), (12, "8 or 16 or 32 is possible")])
def test_rows_of_other_lanes_are_refused(lanes: int, text: str) -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        other = k.registers("y", (16, 256), "fp32", warps=(4, 1), spread="rows", row_lanes=lanes)
        k.elementwise("copy", other, tile)

    with pytest.raises(UserError, match=text):
        built(body)


def test_rows_are_divided_among_the_warps() -> None:
    with pytest.raises(UserError, match="cannot be divided among"):
        built(lambda k, tile: k.elementwise("neg", tile, tile), rows=6)
