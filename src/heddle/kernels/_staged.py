"""Kernels of mode fiber that read each datum once, without full and empty bits: copies to shared memory, units ahead.

Registers cannot say that a load into them has landed, so what is on its way goes to shared memory by cp.async, whose
groups a weft counts. A weft copies what it works on itself, `stages` - 1 units ahead; no weft waits for another one,
and no register is read by two. `set_fiber_num` spawns as many groups of four wefts as have registers; one FIBER-thread
stays on each SM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.warp_fiber import WINDOW
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import BEGIN_REGISTERS, QUAD, WEFTS, Units, covering_bytes
from heddle.lang import Builder, GlobalHandle, Index, Item, RingPosition, SharedHandle
from heddle.machine.spec import Machine

LANE_BYTES = 16
"""Of a copy: what a lane moves."""
BARRIER_BYTES = 1024
"""Of shared memory, left for what is beside the stages."""
MOST_GROUPS = 6
MOST_STAGES = 8
LEAST_STAGES = 2
MOST_TRIED = 4
"""Candidates: those with most groups, whose stores and copies hide each other best."""
TILE = (
    TileParameter("groups", int, "groups of four wefts that copy and work", f"1 to {MOST_GROUPS}, as registers hold"),
    TileParameter("stages", int, "units of a group in shared memory", f"2 to {MOST_STAGES}, as shared memory holds"),
)
"""What the fields of `StagedConfig` may be, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedConfig:
    """A FIBER-thread has `groups` groups of four wefts, each with `stages` units in shared memory."""

    groups: int
    stages: int

    def label(self) -> str:
        """Return a short name, as in `fiber g4 s2 staged`."""
        return f"fiber g{self.groups} s{self.stages} staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedNeeds:
    """Shared memory for a unit of four wefts and, once, for all groups; registers of a weft (`work`)."""

    unit_bytes: int
    work: int
    once_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """A unit of a group: the work item that says which, and the stage of shared memory where it is."""

    item: Item
    group: int
    at_stage: RingPosition
    which: str

    def at(self, attribute: str) -> Index:
        """Return an attribute of the unit."""
        found: Index = getattr(self.item, f"{attribute}_{self.group}_{self.which}")
        return found


def candidates(needs: StagedNeeds, units: int, machine: Machine) -> list[StagedConfig]:
    """Return what fits: for each number of groups as few stages as cover the latency of DRAM, and the most.

    Empty where nothing fits.
    """
    found: list[StagedConfig] = []
    for groups in range(min(MOST_GROUPS, max(1, units // machine.sms)), 0, -1):
        most = _most_stages(needs, groups, machine)
        least = max(LEAST_STAGES, 1 + ceil_div(covering_bytes(machine), groups * needs.unit_bytes))
        if most >= LEAST_STAGES:
            found += [StagedConfig(groups=groups, stages=stages) for stages in (min(least, most), most)]
    return list(dict.fromkeys(found))[:MOST_TRIED]


def check_config(config: StagedConfig, needs: StagedNeeds, machine: Machine) -> None:
    """Raise UserError where a configuration does not fit registers or shared memory."""
    groups = _most_groups(needs)
    if not 1 <= config.groups <= groups:
        raise UserError(f"groups must be 1 to {groups}, as registers hold; got {config.groups}")
    most = _most_stages(needs, config.groups, machine)
    if not LEAST_STAGES <= config.stages <= most:
        raise UserError(
            f"stages must be {LEAST_STAGES} to {most} with {config.groups} groups, as shared memory holds; got "
            f"{config.stages}",
            hint="use fewer groups" if most < LEAST_STAGES else "",
        )


def _most_groups(needs: StagedNeeds) -> int:
    return min(MOST_GROUPS, 2 * ((WINDOW - QUAD - BEGIN_REGISTERS) // needs.work))


def _most_stages(needs: StagedNeeds, groups: int, machine: Machine) -> int:
    if groups > _most_groups(needs):
        return 0
    room = machine.shared_memory_bytes_per_cta - BARRIER_BYTES - needs.once_bytes
    return max(0, min(MOST_STAGES, room // (groups * needs.unit_bytes)))


def staged_items(
    units: Units, outside: Mapping[str, int], config: StagedConfig, machine: Machine
) -> tuple[dict[str, list[int]], int]:
    """Return the work items and how many FIBER-threads there are: a unit of each group, and those that are copied.

    Units in turn to threads, then groups. `outside`: attributes of a unit that does not exist, which reads zeros and
    writes nothing. `first`: whether an item is its thread's first, which copies all units before the last stage.
    """
    count = len(next(iter(units.values())))
    threads, ahead = min(machine.sms, count), config.stages - 1
    whiches = {"now": 0, "ahead": ahead, **{f"start{stage}": stage for stage in range(ahead)}}
    rounds = ceil_div(count, threads * config.groups)
    items: dict[str, list[int]] = {"first": [int(number < threads) for number in range(rounds * threads)]}
    for name, values in units.items():
        for group in range(config.groups):
            for which, later in whiches.items():
                numbers = [
                    ((turn + later) * config.groups + group) * threads + thread
                    for turn in range(rounds)
                    for thread in range(threads)
                ]
                items[f"{name}_{group}_{which}"] = [values[n] if n < count else outside[name] for n in numbers]
    return items, threads


def staged(
    k: Builder,
    config: StagedConfig,
    needs: StagedNeeds,
    copy: Callable[[Staged], None],
    work: Callable[[Staged], None],
    begin: Callable[[int], None] = lambda group: None,
) -> None:
    """Write the roles: `copy(unit)` starts the copies of a unit, `work(unit)` works on one that is there.

    `begin`: what a group does once, before the first unit.
    """
    ahead = config.stages - 1
    k.set_fiber_num(begin=1, **{f"work{g}": WEFTS for g in range(config.groups)})
    rings = [k.ring(f"ring_{g}", config.stages) for g in range(config.groups)]
    with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
        pass
    for g, ring in enumerate(rings):
        with k.role(f"work{g}", window=g % 2, registers=needs.work):
            begin(g)
            for item in k.work():
                with k.when(item.first):
                    for stage in range(ahead):
                        copy(Staged(item, g, ring + stage, f"start{stage}"))
                        k.cp_async_commit()
                copy(Staged(item, g, ring + ahead, "ahead"))
                k.cp_async_commit()
                k.cp_async_wait(pending=ahead)
                work(Staged(item, g, ring, "now"))
                ring.advance()


def copy_own(
    k: Builder, to: SharedHandle, unit: Staged, source: GlobalHandle, row: Index, col: Index | int, block: int
) -> None:
    """Copy a stage of a tile in blocks of so many columns, of which each of four wefts has what it works on itself."""
    for first in range(0, to.tile.cols, block):
        k.cp_async(to[unit.at_stage].part(col=first, cols=block), source[row, col + first], bytes_per_lane=LANE_BYTES)
