"""Control flow: role entry and end, loops, the loop over work items, conditional bodies, rings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from heddle.errors import unknown_name
from heddle.ir.tile import Advance, For, ForEachItem, Mma, Op, When
from heddle.ir.warp import Count
from heddle.passes.draft import Draft, Operand
from heddle.passes.select.writer import RoleWriter

Lower = Callable[[RoleWriter, Op], None]
ITEM_COORDINATE_OPS = ("IMAD", "IMAD", "IADD3", "SHF", "IMAD", "IADD3", "R2UR", "R2UR")  # tile index -> coordinates
# Items that are handed out one by one come in sections, longest first: an index is divided again and again, each time
# by a multiplier and a shift, and the bounds of the loop follow. About 90 instructions in the disassembled kernel.
DIVISION_OPS = ("IMAD", "SHF", "ISETP", "IADD3", "IMAD")
DYNAMIC_DIVISIONS = 16


def lower_role(writer: RoleWriter, lower: Lower) -> tuple[Draft, ...]:
    """The complete code of a role: entry, body, EXIT."""
    for op in writer.role.body:
        lower(writer, op)
    writer.operation = "exit"
    writer.emit("EXIT")
    if not writer.role.body:  # wefts that only fill up a group of four
        return tuple(writer.code)
    body, writer.code = writer.code, []
    _entry(writer)
    return tuple(writer.code + writer.entry + _start(writer) + body)


def _entry(writer: RoleWriter) -> None:
    writer.where, writer.operation = writer.role.where, "entry"
    thread = Operand(writer.value("thread"))
    warp = Operand(writer.value("warp"))
    writer.emit("S2R", thread)
    writer.emit("SHF", warp, (thread,))
    writer.scalar("R2UR", warp, name="warp")
    writer.scalar("ISETP", thread, name="elected")


def _start(writer: RoleWriter) -> list[Draft]:
    """Take the role's register budget where budgets differ. (The kernel itself meets once its mbarriers are there.)"""
    kept, writer.code = writer.code, []
    program = writer.program
    budgets = program.architecture != "sm_80" and program.mode != "fiber"
    if budgets and len({r.registers for r in program.roles}) > 1:
        writer.emit("USETMAXREG")
    start, writer.code = writer.code, kept
    return start


def lower_for(writer: RoleWriter, op: For, lower: Lower) -> None:
    """A counted loop: counter, compare, backward branch; guarded where an item may have no iteration."""
    if op.count.attribute is None and op.count.value + op.count.offset <= 0:
        return
    end = _guard(writer, op.count)
    fresh = [v for name in _overwritten(op.body, op.name) for v in writer.tile_values(name)]
    if fresh:
        writer.define(fresh)
    counter = Operand(writer.value(f"{op.name}.counter", file="uniform"))
    writer.emit("UMOV", counter)
    start = writer.label()
    level = writer.enter_loop(op.name)
    writer.place(start)
    for inner in op.body:
        lower(writer, inner)
    writer.where, writer.operation = op.where or writer.where, "For"
    writer.update("UIADD3", counter)
    more = writer.scalar("UISETP", counter, name="more")
    writer.emit("LOOP", src=(more,), target=start, level=level, count=op.count)
    writer.loops.pop()
    if end:
        writer.place(end)


def _overwritten(body: tuple[Op, ...], loop: str) -> list[str]:
    """Register accumulators that the first iteration of a loop overwrites: their old contents are dead before it."""
    names: list[str] = []
    for op in body:
        if isinstance(op, Mma) and isinstance(op.acc, str) and op.accumulate == "first_iteration" and op.loop == loop:
            names.append(op.acc)
        elif isinstance(op, For | When):
            names += _overwritten(op.body, loop)
    return names


def _guard(writer: RoleWriter, count: Count) -> str:
    """Skip a loop that some items do not enter; returns the label behind it, or nothing."""
    if count.attribute is None:
        return ""
    counts = writer.tables.item_values(count.attribute, writer.where) + count.offset
    if len(counts) and counts.min() > 0:
        return ""
    name = count.attribute if count.offset == 0 else f"{count.attribute}{count.offset:+d}"
    if count.offset:
        writer.tables.add_column(name, np.maximum(counts, 0))
    return _skip(writer, name)


def _skip(writer: RoleWriter, attribute: str) -> str:
    end = writer.label()
    zero = writer.scalar("UISETP", name="skip")
    writer.emit("SKIP", src=(zero,), target=end, attribute=attribute)
    return end


def lower_for_each_item(writer: RoleWriter, op: ForEachItem, lower: Lower) -> None:
    """The loop over work items: coordinates of the item, body, next item (none under schedule `launch`)."""
    start = writer.label()
    writer.place(start)
    last = writer.scalar("IMAD", name="item")
    divisions = DYNAMIC_DIVISIONS if writer.program.work.schedule == "dynamic" else 0
    for name in (*DIVISION_OPS * divisions, *ITEM_COORDINATE_OPS):
        result = writer.scalar(name, *([last] if last.value.file == "vector" else []), name="coordinate")
        last = last if result.value.file == "predicate" else result
    for inner in op.body:
        lower(writer, inner)
    if writer.program.work.schedule == "launch":
        return
    writer.where, writer.operation = op.where or writer.where, "ForEachItem"
    index = writer.kept("item")
    writer.update("UIADD3", index)
    more = writer.scalar("UISETP", index, name="more")
    writer.emit("NEXT", src=(more,), target=start)


def lower_when(writer: RoleWriter, op: When, lower: Lower) -> None:
    """A body that is skipped when the item attribute is zero."""
    writer.tables.item_values(op.attribute, writer.where)
    end = _skip(writer, op.attribute)
    for inner in op.body:
        lower(writer, inner)
    writer.place(end)


def lower_advance(writer: RoleWriter, op: Advance) -> None:
    """Next stage; at the end stage 0 and the other phase. The ring steps on the instruction that flips the phase."""
    depths = {ring.name: ring.depth for ring in writer.program.rings}
    for ring in op.rings:
        if ring not in depths:
            raise unknown_name("ring", ring, depths, writer.where)
        if depths[ring] > 1:
            writer.update("UIADD3", writer.stage(ring))
            wrap = writer.scalar("UISETP", writer.stage(ring), name="wrap")
            writer.update("USEL", writer.stage(ring), wrap)
            flip = writer.scalar("USEL", wrap, name="flip")
            writer.emit("ULOP3", writer.phase(ring), (writer.phase(ring), flip), advance=(ring,))
        else:
            writer.emit("ULOP3", writer.phase(ring), (writer.phase(ring),), advance=(ring,))
