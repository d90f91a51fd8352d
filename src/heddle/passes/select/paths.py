"""Fibers of a warp that part and meet again: BSSY, a branch of some fibers, and a BSYNC at the end of each path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import Fibers, LoadGlobal, Op, OtherFibers
from heddle.ir.warp import Count
from heddle.passes.select.writer import FRAGMENT_ROW_LANES, Path, RoleWriter

Lower = Callable[[RoleWriter, Op], None]


def lower_fibers(writer: RoleWriter, op: Fibers, lower: Lower) -> None:
    """The path of the first fibers; it ends where the code goes on, which is behind the other path if there is one."""
    _check(writer, op.count)
    fiber = writer.kept("fiber", file="vector", op="IMAD")
    writer.emit("BSSY")
    inside = writer.scalar("ISETP", fiber, name="inside")
    other = writer.label()
    writer.emit("BRA.P", src=(inside,), target=other, count=op.count)
    _path(writer, op.body, lower, Path(op.count, others=False))
    writer.emit("BSYNC", target=other)
    writer.place(other)


def lower_other_fibers(writer: RoleWriter, op: OtherFibers, lower: Lower) -> None:
    """The other path: the first one goes on behind it."""
    end = writer.label()
    first = writer.code[-2]
    assert first.op == "BSYNC"
    assert writer.last_path is not None
    writer.code[-2] = replace(first, target=end)
    _path(writer, op.body, lower, replace(writer.last_path, others=True))
    writer.emit("BSYNC", target=end)
    writer.place(end)


def _path(writer: RoleWriter, body: tuple[Op, ...], lower: Lower, path: Path) -> None:
    """A body; the other path may run while a load from global memory is on its way."""
    writer.path = writer.last_path = path
    for inner in body:
        lower(writer, inner)
        if isinstance(inner, LoadGlobal):
            writer.emit("YIELD")
    writer.path = None


def _check(writer: RoleWriter, count: Count) -> None:
    """Fibers that share rows do not part."""
    if writer.program.architecture == "sm_100":
        return
    values = [count.value]
    if count.attribute is not None:
        values = writer.tables.item_values(count.attribute, writer.where).tolist()
    wrong = next((value + count.offset for value in values if (value + count.offset) % FRAGMENT_ROW_LANES), None)
    if wrong is not None:
        raise UserError(
            f"the first {wrong} fibers; {FRAGMENT_ROW_LANES} neighbours share the rows of a tile on "
            f"{writer.program.architecture}",
            where=writer.where,
            hint=f"part fibers at multiples of {FRAGMENT_ROW_LANES}",
        )
