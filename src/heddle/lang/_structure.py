"""The structure of a kernel under construction: roles, loops, conditions, and the stack of open bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from heddle.errors import SourceLocation, UserError, unknown_name
from heddle.ir import tile
from heddle.ir.warp import Count, Work
from heddle.lang._index import Index
from heddle.lang._where import caller

IDLE = "idle_"
"""Begins the names of roles whose wefts end at once."""
MOST_PACE = 15
"""The largest stall count of an instruction."""
IDLE_REGISTERS = 8
"""Of such a role, for what every weft computes at its entry."""


@dataclass
class _Body:
    """An open body: the operations so far, what opened it and where."""

    kind: str
    where: SourceLocation
    ops: list[tile.Op] = field(default_factory=list)


@dataclass
class _Role:
    """The role whose code is being written."""

    name: str
    warps: int


class Item:
    """The current work item; its attributes are symbolic integers."""

    def __init__(self, attributes: tuple[str, ...]) -> None:
        self._attributes = attributes

    def __getattr__(self, name: str) -> Index:
        if name not in self._attributes:
            raise unknown_name("work item attribute", name, self._attributes, caller())
        return Index(attribute=name)


class Structure:
    """Keeps the open role and bodies; the operations of `Builder` append through `_emit`."""

    def __init__(self) -> None:
        self._stack: list[_Body] = []
        self._role: _Role | None = None
        self._roles: list[tile.RoleBody] = []
        self._work: Work | None = None
        self._wefts: dict[str, int] = {}
        self._first_op: tile.Op | None = None
        self._loops = 0
        self._left: tuple[str, SourceLocation] | None = None

    @property
    def mode(self) -> str:
        """Mode of the kernel: fiber once the number of fibers is set, else simt."""
        return "fiber" if self._wefts else "simt"

    def _emit(self, op: tile.Op) -> None:
        self._check_left()
        if self._role is None:
            raise UserError(
                f"{type(op).__name__} stands outside every role",
                where=op.where,
                hint='write it inside `with k.role("name", warps=..., registers=...):`',
            )
        self._stack[-1].ops.append(op)

    def _check_left(self) -> None:
        """Report a loop that Python left early: its body cannot be closed in order."""
        if self._left is not None:
            kind, where = self._left
            raise UserError(
                f"{kind} was left by break or return; it runs its full count when the kernel runs",
                where=where,
                hint="use a smaller count, or `with k.when(item.flag):` inside the loop",
            )

    @contextmanager
    def _body(self, kind: str, where: SourceLocation) -> Iterator[_Body]:
        body = _Body(kind, where)
        self._stack.append(body)
        yield body
        self._check_left()
        if self._stack[-1] is not body:
            raise UserError(f"{kind} ends while {self._stack[-1].kind} inside it is open", where=where)
        self._stack.pop()

    def _loop_body(self, kind: str, where: SourceLocation, value: Index | Item, body: _Body) -> Iterator[Index | Item]:
        """Yield `value` once, between opening and closing `body`; notes when Python leaves the loop early."""
        self._check_left()
        self._stack.append(body)
        try:
            yield value
        except GeneratorExit:
            self._left = (kind, where)
            raise
        self._check_left()
        self._stack.pop()

    def work_items(self, items: dict[str, list[int]], *, clusters: int, schedule: str = "static") -> None:
        """Declare the work: one list an attribute, all of equal length (one entry an item), and who runs it.

        `schedule`: "static" (persistent, item c, c + clusters, ...), "launch" (one cluster an item) or "dynamic".
        """
        where = caller()
        lengths = {len(column) for column in items.values()}
        if len(lengths) != 1 or 0 in lengths:
            sizes = ", ".join(f"{name}: {len(column)}" for name, column in items.items())
            raise UserError(f"every attribute needs one value for each work item; got {sizes or 'none'}", where=where)
        if schedule not in ("static", "launch", "dynamic"):
            raise unknown_name("schedule", schedule, ("static", "launch", "dynamic"), where)
        if clusters < 1:
            raise UserError(f"at least one cluster must run, got {clusters}", where=where)
        table = np.stack([np.asarray(column, dtype=np.int64) for column in items.values()], axis=1)
        table.setflags(write=False)
        self._work = Work(attributes=tuple(items), items=table, schedule=schedule, grid=clusters)  # type: ignore[arg-type]

    @contextmanager
    def role(
        self,
        name: str,
        *,
        registers: int,
        warps: int | None = None,
        leader_only: bool = False,
        window: int = 0,
        pace: int = 1,
    ) -> Iterator[None]:
        """Open the code of a role of `warps` warps with `registers` a thread; `leader_only`: in rank 0 of a cluster.

        In mode fiber `set_fiber_num` has given the role its wefts; `registers` are for its own tiles and temporaries,
        and `window` (0 or 1) is the half of a subpartition's registers that its wefts write. `pace`: a warp of the role
        issues at most one instruction in so many cycles; a scheduler stays with the warp that issued last while it can,
        so a role that has time leaves the issue slots to one that has none.
        """
        where = caller()
        self._check_left()
        if self._role is not None:
            raise UserError(f"role {name!r} is inside role {self._role.name!r}; roles stand side by side", where=where)
        if any(role.name == name for role in self._roles):
            raise UserError(f"there is a role {name!r} already", where=where)
        count = self._count_of(name, warps, where)
        if count < 1 or registers < 1:
            raise UserError(f"role {name!r} needs warps and registers of 1 or more", where=where)
        if not 1 <= pace <= MOST_PACE:
            raise UserError(f"role {name!r} has pace {pace}; a stall count is 1 to {MOST_PACE} cycles", where=where)
        self._role = _Role(name, count)
        with self._body(f"role {name!r}", where) as body:
            if self._first_op is not None:
                body.ops.append(self._first_op)
                self._first_op = None
            yield
        self._role = None
        self._roles.append(
            tile.RoleBody(
                name=name,
                warps=count,
                registers=registers,
                body=tuple(body.ops),
                leader_only=leader_only,
                window=window,
                pace=pace,
                where=where,
            )
        )

    def _count_of(self, name: str, warps: int | None, where: SourceLocation) -> int:
        """Return the warps of a role, which in mode fiber are those that set_fiber_num names."""
        if not self._wefts:
            if warps is None:
                raise UserError(f"role {name!r} needs warps", where=where)
            return warps
        if warps is not None:
            raise UserError(f"role {name!r} has the wefts that set_fiber_num gives it; leave out warps", where=where)
        if name not in self._wefts:
            known = [other for other in self._wefts if not other.startswith(IDLE)]
            raise unknown_name("role of set_fiber_num", name, known, where)
        order = list(self._wefts)
        while order[len(self._roles)].startswith(IDLE):
            self._idle(order[len(self._roles)])
        expected = order[len(self._roles)]
        if name != expected:
            raise UserError(f"role {name!r} stands before {expected!r}; keep the order of set_fiber_num", where=where)
        return self._wefts[name]

    def _idle(self, name: str) -> None:
        role = tile.RoleBody(name=name, warps=self._wefts[name], registers=IDLE_REGISTERS, body=())
        self._roles.append(role)

    def _check_wefts(self) -> None:
        """Every role that set_fiber_num spawns has code."""
        missing = [name for name in self._wefts if all(role.name != name for role in self._roles)]
        if missing:
            raise UserError(f"set_fiber_num spawns {missing[0]!r}, which has no code", where=caller())

    def work(self) -> Iterator[Item]:
        """Loop over the work items of this CTA: `for item in k.work():`."""
        where = caller()
        if self._work is None:
            raise UserError("k.work() before the work is declared", where=where, hint="call k.work_items(...) first")
        if any(body.kind == "k.work()" for body in self._stack):
            raise UserError("k.work() inside k.work()", where=where)
        body = _Body("k.work()", where)
        yield from self._loop_body("k.work()", where, Item(self._work.attributes), body)  # type: ignore[misc]
        self._emit(tile.ForEachItem(body=tuple(body.ops), where=where))

    def range(self, count: Index | int, *, name: str | None = None) -> Iterator[Index]:
        """Loop `count` times (at least once) when the kernel runs: `for kb in k.range(item.k_blocks):`."""
        where = caller()
        times = count.count() if isinstance(count, Index) else Count(count)
        if times.attribute is None and times.value < 1:
            raise UserError(f"a loop runs at least once, got a count of {times.value}", where=where)
        name = name or f"i{self._loops}"
        self._loops += 1
        body = _Body("k.range()", where)
        yield from self._loop_body("k.range()", where, Index(loop=name, step=1), body)  # type: ignore[misc]
        self._emit(tile.For(name=name, count=times, body=tuple(body.ops), where=where))

    @contextmanager
    def when(self, flag: Index) -> Iterator[None]:
        """Run the body for work items whose attribute is not zero: `with k.when(item.is_last):`."""
        where = caller()
        if not isinstance(flag, Index) or flag.attribute is None or flag.loop or flag.constant or flag.rank_step:
            raise UserError("k.when needs a work item attribute, as in k.when(item.is_last)", where=where)
        with self._body("k.when()", where) as body:
            yield
        self._emit(tile.When(attribute=flag.attribute, body=tuple(body.ops), where=where))

    @contextmanager
    def fibers(self, first: Index | int) -> Iterator[None]:
        """Run the body with the first so many fibers of the role: `with k.fibers(first=item.valid):`.

        A warp that has both kinds parts: its fibers run one path, then the other, and change over where one has started
        a load from global memory. `other_fibers` may follow.
        """
        where = caller()
        count = first.count() if isinstance(first, Index) else Count(first)
        with self._body("k.fibers()", where) as body:
            yield
        self._emit(tile.Fibers(count=count, body=tuple(body.ops), where=where))

    @contextmanager
    def other_fibers(self) -> Iterator[None]:
        """Run the body with the fibers that the `k.fibers(...)` just before leaves out."""
        where = caller()
        with self._body("k.other_fibers()", where) as body:
            yield
        self._emit(tile.OtherFibers(body=tuple(body.ops), where=where))
