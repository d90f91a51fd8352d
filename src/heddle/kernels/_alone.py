"""Kernels of mode fiber that read each datum once, of wefts alone: each loads what it works on into its own registers.

For machines without full and empty bits, and for passes that load nothing. `set_fiber_num` spawns as many groups of
four wefts as have registers, and the loads of a group are on their way while others work; no weft waits for another
one, and no register is shared. One FIBER-thread stays on each SM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.warp_fiber import WINDOW
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import BEGIN_REGISTERS, QUAD, WEFTS, Units
from heddle.lang import Builder, Index, Item
from heddle.machine.spec import Machine


@dataclass(frozen=True, slots=True)
class Alone:
    """A unit of a group: the work item that says which."""

    item: Item
    group: int

    def at(self, attribute: str) -> Index:
        """Return an attribute of the unit."""
        found: Index = getattr(self.item, f"{attribute}_{self.group}")
        return found


def groups_that_fit(registers: int, most: int) -> int:
    """Return the groups whose wefts have so many registers each, `most` at most; 0 where none fits."""
    return min(most, 2 * ((WINDOW - QUAD - BEGIN_REGISTERS) // registers))


def check_groups(groups: int, registers: int, most: int, hint: str, what: str = "") -> None:
    """Raise UserError where groups of wefts do not fit the registers; `hint`: what to do where none fits."""
    fit = groups_that_fit(registers, most)
    if not 1 <= groups <= fit:
        raise UserError(
            f"groups must be 1 to {fit}{what}, as registers hold; got {groups}", hint=hint if fit < 1 else ""
        )


def alone_items(
    units: Units, groups: int, machine: Machine, outside: Mapping[str, int] | None = None
) -> tuple[dict[str, list[int]], int]:
    """Return the work items and how many FIBER-threads there are: units in turn to threads, then groups.

    `outside`: attributes of a unit that does not exist, which reads zeros and writes nothing; without it an item says
    for each group whether it `has` a unit, and wefts leave out what there is not.
    """
    count = len(next(iter(units.values())))
    threads = min(machine.sms, count)
    rounds = ceil_div(count, threads * groups)
    numbers = {
        group: [(turn * groups + group) * threads + thread for turn in range(rounds) for thread in range(threads)]
        for group in range(groups)
    }
    items = {
        f"{name}_{group}": [values[n] if n < count else (outside or {}).get(name, 0) for n in found]
        for name, values in units.items()
        for group, found in numbers.items()
    }
    if outside is None:
        items |= {f"has_{group}": [int(n < count) for n in found] for group, found in numbers.items()}
    return items, threads


def alone(
    k: Builder,
    items: Mapping[str, Sequence[int]],
    groups: int,
    registers: int,
    work: Callable[[Alone], None],
    begin: Callable[[int], None] = lambda group: None,
) -> None:
    """Write the roles: `work(unit)` loads a unit and works on it; `begin`: what a group does once, before the first."""
    k.set_fiber_num(begin=1, **{f"work{g}": WEFTS for g in range(groups)})
    with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
        pass
    for g in range(groups):
        with k.role(f"work{g}", window=g % 2, registers=registers):
            begin(g)
            for item in k.work():
                flag = f"has_{g}"
                if all(items.get(flag, ())):
                    work(Alone(item, g))
                else:
                    with k.when(getattr(item, flag)):
                        work(Alone(item, g))
