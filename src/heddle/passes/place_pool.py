"""Pass 4b (mode fiber): give pool tensors and roles' own registers their place in a subpartition's register file.

A register is written by wefts of its own subpartition and window only. So a tensor lies in the window of the role that
produces it, at the same numbers in all four subpartitions, each holding the rows of its own weft (rows stay in their
subpartition): the home of a fragment is where it is written, and readers go there. Own registers of the roles lie at
the bottom of window 0 and the top of window 1, so that the pool is one range between them. The last register of a
window cannot be named as a destination (it is RZ), which costs its quad. All wefts run at the same time, from
set_fiber_num to the end: a pool tensor keeps its registers for as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from heddle.errors import UserError
from heddle.ir.warp import RZ
from heddle.ir.warp_fiber import WINDOW
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
        firsts, free = _stack(program, own)
        pool: dict[int, int] = {ZERO.id: RZ}
        wanted = [(role, value) for role in program.roles for value in produced(role)]
        for role, value in sorted(wanted, key=lambda pair: -pair[1].count):  # the largest first: fewer holes
            if value.id in pool:
                continue
            first = free[role.body.window].take(value.count, value.align)
            if first is None:
                raise _full(program, role, value, free[role.body.window])
            pool[value.id] = first
        roles = (
            replace(role, registers={**role.registers, **pool}, private_first=first)
            for role, first in zip(program.roles, firsts, strict=True)
        )
        return replace(program, roles=tuple(roles))


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
    for window, used in ((0, bottom), (1, WINDOW + USABLE - top)):
        if used > USABLE:
            raise UserError(
                f"kernel {program.tile.name}: the roles of window {window} need {used} registers of their own, "
                f"it has {USABLE}",
                hint="move a role to the other window, or use smaller tiles",
            )
    return firsts, (FreeList([(bottom, USABLE)]), FreeList([(WINDOW, top)]))


def _full(program: DraftProgram, role: RoleDraft, value: Value, free: FreeList) -> UserError:
    others = [other.body.name for other in program.roles if other.body.window == role.body.window]
    return UserError(
        f"pool tensor {value.tile} needs {value.count} registers of each subpartition in window {role.body.window}, "
        f"where role {role.body.name} writes; {free.free} are free there (it also holds the registers of "
        f"{', '.join(others)})",
        where=role.body.where,
        hint="move a role to the other window, or use fewer stages or smaller tiles",
    )
