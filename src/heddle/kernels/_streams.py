"""Kernels of mode fiber that read each datum once: wefts that load into pool tensors, wefts that work on what is there.

A FIBER-thread has `groups` pairs of roles. The four loading wefts of a pair start loads from global memory straight
into shared registers, unit after unit, and wait for none of them: the full bit of a register holds the next load into
it back until the working wefts have read the datum, whose empty bit they wait for. So bytes are on their way all the
time, as many as the pool has registers, whatever the working wefts do. `set_fiber_num` spawns as many pairs as cover
the latency of DRAM; one FIBER-thread stays on each SM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from heddle.errors import UserError
from heddle.ir.warp_fiber import SUBPARTITIONS, WINDOW
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.lang import Builder, Index, Item
from heddle.machine.spec import Machine

WEFTS = SUBPARTITIONS
"""Of a role: one in each subpartition."""
QUAD = 4
"""Registers at the end of a window that no aligned group can use (place_pool)."""
LOAD_REGISTERS = 12
"""Of a loading weft: addresses of loads whose operands have not been read."""
BEGIN_REGISTERS = 4
MOST_GROUPS = 4
MOST_STAGES = 8
TILE = (
    TileParameter("groups", int, "pairs of roles, four wefts each: one loads, one works", f"1 to {MOST_GROUPS}"),
    TileParameter("stages", int, "units that a pair has in the pool", f"1 to {MOST_STAGES}, as registers hold"),
)
"""What the fields of `StreamConfig` may be, for people."""
Units = Mapping[str, Sequence[int]]
"""What there is to do: one list an attribute, one entry a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """A FIBER-thread has `groups` pairs of roles, each with `stages` units in the pool."""

    groups: int
    stages: int

    def label(self) -> str:
        """Return a short name, as in `fiber g2 s2`."""
        return f"fiber g{self.groups} s{self.stages}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Registers of a weft: `unit` in the pool for a unit, `work` of the working role, `once` for what pairs share.

    `least`: stages below which loads stop while a unit is worked on: two where it is given back late.
    """

    unit: int
    work: int
    once: int = 0
    least: int = 1


@dataclass(frozen=True, slots=True)
class Slot:
    """A unit in a place of the pool: its pair, its stage, and the work item that says which unit it is."""

    item: Item
    group: int
    stage: int

    def at(self, attribute: str) -> Index:
        """Return an attribute of the unit."""
        found: Index = getattr(self.item, _name(attribute, self.group, self.stage))
        return found


def candidates(needs: Needs, units: int, machine: Machine) -> list[StreamConfig]:
    """Return what fits: as few stages as cover the latency of DRAM, and as many as there is room for.

    More on their way than DRAM needs only makes stores wait behind them. Empty where no window holds a unit. A
    FIBER-thread with fewer units than the pool has places spawns no more pairs than it has work for.
    """
    each, stage_bytes = ceil_div(units, machine.sms), needs.unit * LANES * REGISTER_BYTES * WEFTS
    found: list[StreamConfig] = []
    for groups in (2, 1):
        pairs = min(groups, each)
        most = min(MOST_STAGES, _stages_that_fit(needs, groups), ceil_div(each, pairs))
        least = max(needs.least, ceil_div(covering_bytes(machine), groups * stage_bytes))
        found += [StreamConfig(groups=pairs, stages=stages) for stages in (min(least, most), most) if stages]
    return list(dict.fromkeys(found))


def covering_bytes(machine: Machine) -> int:
    """Return the bytes that an SM must have on their way for DRAM to be busy: rate times latency (Little's law)."""
    latency_ns = machine.dram_extra_latency_ns + machine.l2_far_latency_cycles * 1e3 / machine.max_clock_mhz
    return ceil(machine.dram_gbytes_per_s * latency_ns / machine.sms)


def check_config(config: StreamConfig, needs: Needs) -> None:
    """Raise UserError where a configuration does not fit the registers."""
    if not 1 <= config.groups <= MOST_GROUPS:
        raise UserError(f"groups must be 1 to {MOST_GROUPS}, got {config.groups}")
    most = min(MOST_STAGES, _stages_that_fit(needs, config.groups))
    if not 1 <= config.stages <= most:
        raise UserError(
            f"stages must be 1 to {most} with {config.groups} groups, as registers hold; got {config.stages}",
            hint="use fewer groups" if most < 1 else "",
        )


def usable(groups: int) -> int:
    """Return the registers of a subpartition that a pair has for its pool tensors and its roles, by its window."""
    pairs_of_window = ceil_div(groups, 2)
    return (WINDOW - QUAD - BEGIN_REGISTERS) // pairs_of_window - LOAD_REGISTERS


def _stages_that_fit(needs: Needs, groups: int) -> int:
    """One pair has a window for its pool alone, and its working wefts the other; else each pair has part of one."""
    if needs.work > WINDOW - QUAD:
        return 0
    room = usable(groups) - needs.once - (needs.work if groups > 1 else 0)
    return max(0, room // needs.unit)


def unit_items(units: Units, config: StreamConfig, machine: Machine) -> tuple[dict[str, list[int]], int]:
    """Return the work items and how many FIBER-threads there are: units in turn to threads, then pairs, then stages.

    `has`: whether an item has a unit for that pair and stage; the first of each item is always there.
    """
    count = len(next(iter(units.values())))
    threads = min(machine.sms, count)
    slots = list(_slots(config))
    names = [_name(attribute, *slot) for attribute in ("has", *units) for slot in slots]
    items: dict[str, list[int]] = {name: [] for name in names}
    for first in range(0, count, threads * len(slots)):
        for thread in range(min(threads, count - first)):
            for number, slot in enumerate(slots):
                unit = first + number * threads + thread
                items[_name("has", *slot)].append(int(unit < count))
                for attribute, values in units.items():
                    items[_name(attribute, *slot)].append(values[unit] if unit < count else 0)
    return items, threads


def stream(
    k: Builder,
    config: StreamConfig,
    items: dict[str, list[int]],
    needs: Needs,
    load: Callable[[Slot], None],
    work: Callable[[Slot], None],
    begin_load: Callable[[int], None] = lambda group: None,
    begin_work: Callable[[int], None] = lambda group: None,
) -> None:
    """Write the roles: `load(slot)` loads a unit and states it full, `work(slot)` works on it and states it empty.

    `begin_load`, `begin_work`: what a pair's roles do once, before the first unit.
    """
    groups = sorted({group for group, _ in used_slots(config, items)})
    pairs = {f"{name}{g}": WEFTS for g in groups for name in ("load", "work")}
    k.set_fiber_num(begin=1, **pairs)
    with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
        pass
    for g in groups:
        with k.role(f"load{g}", window=g % 2, registers=LOAD_REGISTERS):
            begin_load(g)
            for item in k.work():
                _each(k, config, items, item, g, load)
        with k.role(f"work{g}", window=work_window(config, g), registers=needs.work):
            begin_work(g)
            for item in k.work():
                _each(k, config, items, item, g, work)


def used_slots(config: StreamConfig, items: Mapping[str, Sequence[int]]) -> list[tuple[int, int]]:
    """Return (pair, stage) of the places of the pool that some item uses."""
    return [slot for slot in _slots(config) if any(items[_name("has", *slot)])]


def work_window(config: StreamConfig, group: int) -> int:
    """Return the window of the working wefts of a pair: that of its pool, but a single pair has both windows."""
    return 1 if config.groups == 1 else group % 2


def _each(
    k: Builder, config: StreamConfig, items: dict[str, list[int]], item: Item, group: int, do: Callable[[Slot], None]
) -> None:
    """Do something for each stage that has a unit."""
    for stage in range(config.stages):
        flag = _name("has", group, stage)
        if all(items[flag]):
            do(Slot(item, group, stage))
        elif any(items[flag]):
            with k.when(getattr(item, flag)):
                do(Slot(item, group, stage))


def _slots(config: StreamConfig) -> Iterator[tuple[int, int]]:
    """Pairs and stages in the order in which they get units: a stage of each pair, then the next."""
    for stage in range(config.stages):
        for group in range(config.groups):
            yield group, stage


def _name(attribute: str, group: int, stage: int) -> str:
    return f"{attribute}_{group}_{stage}"
