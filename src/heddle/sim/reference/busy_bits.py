"""Full and empty bits of a FIBER-thread's registers, as each subpartition sees them (fiber.md, section 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from heddle.machine.spec import Machine
from heddle.sim.reference.registers import Physical

Part = int | None
"""The subpartition whose consumption a part of F waits for; None: that of whoever consumes."""


class Line:
    """One bit as one place sees it: its value, and changes that are on their way."""

    def __init__(self) -> None:
        self._value = False
        self._changes: dict[int, bool] = {}  # cycle from which it is seen -> value

    def change(self, cycle: int, value: bool) -> None:
        """Let the bit have a value from `cycle` on; of several changes of one cycle a set wins."""
        self._changes[cycle] = value or self._changes.get(cycle, False)

    def at(self, cycle: int) -> bool:
        """Return the value at `cycle`; cycles are asked for in ascending order."""
        for due in sorted(due for due in self._changes if due <= cycle):
            self._value = self._changes.pop(due)
        return self._value


class BusyBits:
    """E with one view in each subpartition; F with one part for each reader, seen where the register lies.

    `origin` is the subpartition of the weft that causes a change: it sees the change at `seen`, others L cycles later.
    """

    def __init__(self, machine: Machine) -> None:
        self._places = range(machine.subpartitions)
        self._delay = machine.busy_bit_broadcast_cycles
        self._empty: dict[tuple[Physical, int], Line] = defaultdict(Line)
        self._full: dict[Physical, dict[Part, Line]] = defaultdict(lambda: defaultdict(Line))
        self.bits_set = 0
        self.bits_cleared = 0

    def empty(self, register: Physical, view: int, cycle: int) -> bool:
        """Return E of a register as subpartition `view` sees it."""
        return self._empty[register, view].at(cycle)

    def full(self, register: Physical, cycle: int) -> bool:
        """Tell whether any part of F is set, where the register lies."""
        return any([line.at(cycle) for line in self._full[register].values()])

    def held(self, cycle: int) -> list[Physical]:
        """Return the registers whose F is set."""
        return sorted(register for register in self._full if self.full(register, cycle))

    def change_empty(
        self, registers: Iterable[Physical], value: bool, origin: int, seen: int, *, scoped: bool = False
    ) -> None:
        """Set or clear E; `scoped`: in the view of the origin only."""
        for register in registers:
            self._count(value)
            for view in [origin] if scoped else self._places:
                self._empty[register, view].change(seen + self._later(view, origin), value)

    def set_full(self, registers: Iterable[Physical], parts: Iterable[Part], origin: int, seen: int) -> None:
        """Set the parts of F that `parts` names."""
        for register in registers:
            self._count(True)
            for part in parts:
                self._full[register][part].change(seen + self._later(register.subpartition, origin), True)

    def clear_full(
        self, registers: Iterable[Physical], origin: int, seen: int, *, part: Part = None, scoped: bool = False
    ) -> None:
        """Clear all parts of F; `scoped`: only `part`."""
        for register in registers:
            self._count(False)
            for one in [part] if scoped else (None, *self._places):  # also a part that is set in the meantime
                self._full[register][one].change(seen + self._later(register.subpartition, origin), False)

    def reset(self, pool: Iterable[Physical], seen: int) -> None:
        """Set E and clear F of the pool, in all views from `seen` on (SETFIBER with ALL)."""
        for register in pool:
            for view in self._places:
                self._empty[register, view].change(seen, True)
            for line in self._full[register].values():
                line.change(seen, False)

    def _later(self, view: int, origin: int) -> int:
        return 0 if view == origin else self._delay

    def _count(self, value: bool) -> None:
        self.bits_set += value
        self.bits_cleared += not value
