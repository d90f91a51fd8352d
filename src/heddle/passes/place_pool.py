"""Pass 4b (mode fiber): give pool tensors and roles' own registers their place in a subpartition's register file.

A register is written by wefts of its own subpartition and window only. So a tensor lies in the window of the role that
produces it, at the same numbers in all subpartitions where that has wefts, each holding the rows of its own weft (rows
stay in their subpartition): the home of a fragment is where it is written, and readers go there. Own registers of the
roles lie at the bottom of window 0 and the top of window 1, so that the pool is one range between them; roles have
different numbers, or, if there are not enough, the same ones in different subpartitions. The last register of a
window cannot be named as a destination (it is RZ), which costs its quad. All wefts run at the same time, from
set_fiber_num to the end: a pool tensor keeps its registers for as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from heddle.errors import UserError
from heddle.ir.tile_walk import role_subpartitions
from heddle.ir.warp import RZ
from heddle.ir.warp_fiber import SUBPARTITIONS, WINDOW
from heddle.machine.spec import Machine
from heddle.passes.draft import ZERO, DraftProgram, RoleDraft, Value

QUAD = 4
USABLE = WINDOW - QUAD  # registers of a window that aligned quads can use


@dataclass(slots=True)
class FreeList:
    """Free ranges [first, limit) of a register file, in order; takes the lowest that fits."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def take(self, count: int, align: int) -> int | None:
        """Take `count` registers from a multiple of `align` on; returns the first, or None if nothing fits."""
        for index, (first, limit) in enumerate(self.ranges):
            start = -(-first // align) * align
            if start + count <= limit:
                left = [(first, start), (start + count, limit)]
                self.ranges[index : index + 1] = [(low, high) for low, high in left if low < high]
                return start
        return None

    def remove(self, first: int, limit: int) -> None:
        """Take the registers [first, limit), which are free."""
        left = [part for low, high in self.ranges for part in ((low, min(high, first)), (max(low, limit), high))]
        self.ranges = [(low, high) for low, high in left if low < high]

    def give(self, first: int, count: int) -> None:
        """Give registers back, and join them with free neighbours."""
        if not count:
            return
        joined: list[tuple[int, int]] = []
        for low, high in sorted([*self.ranges, (first, first + count)]):
            if joined and joined[-1][1] == low:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        self.ranges = joined

    @property
    def free(self) -> int:
        """Free registers."""
        return sum(limit - first for first, limit in self.ranges)


@dataclass(frozen=True, slots=True)
class PlacePool:
    """Place the pool and the own registers of programs of mode fiber."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Place everything. Raises UserError where a window is too small."""
        own = [_own_registers(role) for role in program.roles]
        firsts, windows = _stack(program, own)
        free = [[FreeList(list(window.ranges)) for _ in range(SUBPARTITIONS)] for window in windows]
        pool: dict[int, int] = {ZERO.id: RZ}
        wanted = [(role, value) for role in program.roles for value in produced(role)]
        for role, value in sorted(wanted, key=lambda pair: -pair[1].count):  # the largest first: fewer holes
            if value.id in pool:
                continue
            homes = sorted(set(role_subpartitions(program.tile, role.body)))
            lists = [free[role.body.window][home] for home in homes]
            first = _take_together(lists, value.count, value.align)
            if first is None:
                raise _full(program, role, value, lists[0])
            pool[value.id] = first
        roles = (
            replace(role, registers={**role.registers, **pool}, private_first=first)
            for role, first in zip(program.roles, firsts, strict=True)
        )
        return replace(program, roles=tuple(roles))


def _take_together(lists: list[FreeList], count: int, align: int) -> int | None:
    """Take the same registers of several subpartitions, the lowest that are free in all of them."""
    starts = sorted({-(-low // align) * align for one in lists for low, _ in one.ranges})
    for first in starts:
        if all(any(low <= first and first + count <= high for low, high in one.ranges) for one in lists):
            for one in lists:
                one.remove(first, first + count)
            return first
    return None


def produced(role: RoleDraft) -> Iterator[Value]:
    """Yield the pool values that a role writes, in the order of their first assignment, each once."""
    seen: set[int] = set()
    for draft in role.code:
        for operand in draft.dst:
            if operand.value.file == "pool" and operand.value.id not in seen:
                seen.add(operand.value.id)
                yield operand.value


def _own_registers(role: RoleDraft) -> tuple[int, int]:
    """(alignment, registers) of a role's own values."""
    values = {o.value for draft in role.code for o in draft.dst + draft.src if o.value.file == "vector"}
    used = max((role.registers[value.id] + value.count for value in values), default=0)
    return max((value.align for value in values), default=1), used


def _stack(program: DraftProgram, own: list[tuple[int, int]]) -> tuple[list[int], tuple[FreeList, FreeList]]:
    """First own register of each role, and what is free of both windows; small roles fill the gaps between others."""
    bottom, top = 0, WINDOW + USABLE
    firsts, gaps = [0] * len(own), (FreeList(), FreeList())
    for index in sorted(range(len(own)), key=lambda i: (-own[i][0], -own[i][1])):
        (align, count), window = own[index], program.roles[index].body.window
        first = gaps[window].take(count, align)
        if first is None and window == 0:
            first = -(-bottom // align) * align
            gaps[0].give(bottom, first - bottom)
            bottom = first + count
        elif first is None:
            first = (top - count) // align * align
            gaps[1].give(first + count, top - first - count)
            top = first
        firsts[index] = first
    if bottom > USABLE or WINDOW + USABLE - top > USABLE:
        firsts, bottom, top = _stack_apart(program, own)
    for window, used in ((0, bottom), (1, WINDOW + USABLE - top)):
        if used > USABLE:
            raise UserError(
                f"kernel {program.tile.name}: the roles of window {window} need {used} registers of their own, "
                f"it has {USABLE}",
                hint="move a role to the other window, or use smaller tiles",
            )
    return firsts, (FreeList([(bottom, USABLE)]), FreeList([(WINDOW, top)]))


def _stack_apart(program: DraftProgram, own: list[tuple[int, int]]) -> tuple[list[int], int, int]:
    """The same where roles in different subpartitions have the same numbers: firsts, end of window 0, begin of 1."""
    bottoms, tops = [0] * SUBPARTITIONS, [WINDOW + USABLE] * SUBPARTITIONS
    firsts = [0] * len(own)
    for index in sorted(range(len(own)), key=lambda i: (-own[i][0], -own[i][1])):
        (align, count), role = own[index], program.roles[index].body
        homes = set(role_subpartitions(program.tile, role))
        if role.window == 0:
            firsts[index] = -(-max(bottoms[home] for home in homes) // align) * align
            for home in homes:
                bottoms[home] = firsts[index] + count
        else:
            firsts[index] = (min(tops[home] for home in homes) - count) // align * align
            for home in homes:
                tops[home] = firsts[index]
    return firsts, max(bottoms), min(tops)


def _full(program: DraftProgram, role: RoleDraft, value: Value, free: FreeList) -> UserError:
    others = [other.body.name for other in program.roles if other.body.window == role.body.window]
    return UserError(
        f"pool tensor {value.tile} needs {value.count} registers of each subpartition in window {role.body.window}, "
        f"where role {role.body.name} writes; {free.free} are free there (it also holds the registers of "
        f"{', '.join(others)})",
        where=role.body.where,
        hint="move a role to the other window, or use fewer stages or smaller tiles",
    )
