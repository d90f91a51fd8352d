"""Which registers are live at each instruction: backward data flow over regions of code, on sets of registers as
integers.

A register is live at an instruction if it is read or written there, or holds a value over it that something later may
read. Two things are conventions, stated by `Convention`: whether a guarded write ends the life of the value before it,
and what calls and returns read and write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from heddle.isa.codec import Decoded
from heddle.isa.instruction import Kind
from heddle.isa.registers import Registers

BASES = {Kind.GPR: 0, Kind.UNIFORM: 512, Kind.PREDICATE: 768, Kind.UNIFORM_PREDICATE: 776}
"""The bit of register 0 of each kind."""
SIZES = {Kind.GPR: 512, Kind.UNIFORM: 256, Kind.PREDICATE: 8, Kind.UNIFORM_PREDICATE: 8}
NEVER_NEGATED = 7
UNIFORM_GUARD = 32  # added to the number of a guard that is a uniform predicate


@dataclass(frozen=True, slots=True)
class Convention:
    """How guarded writes and calls count.

    `guarded_ends`: towards earlier regions a guarded write ends the earlier value's life, unless its guard is the
    opposite of the branch that is taken (what nvdisasm prints); else it never ends it (sound: the old value may be read
    where the guard is false). Masks of calls, returns and exits are sets of registers.
    """

    guarded_ends: bool = False
    call_reads: int = 0
    call_writes: int = 0
    return_reads: int = 0
    exit_reads: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """A piece of code for the analysis, by instruction.

    Sets that it reads and writes; its guard (1 + 2 * predicate + negated, and 32 more for uniform ones), 0 for none;
    the instructions that may follow, and which of them is the target of a branch. `starts`: further beginnings of
    regions.
    """

    reads: Sequence[int]
    writes: Sequence[int]
    guards: Sequence[int]
    successors: Sequence[Sequence[int]]
    targets: Mapping[int, int] = field(default_factory=dict)
    starts: frozenset[int] = frozenset()


def registers(kind: Kind, first: int, count: int = 1) -> int:
    """Return the set of registers first..first+count-1 of a kind."""
    return ((1 << count) - 1) << (BASES[kind] + first)


def live_sets(flow: Flow, convention: Convention) -> list[int]:
    """Return the set of live registers at each instruction: read or written there, or living through it."""
    regions = _regions(flow)
    number_of = {region[0]: number for number, region in enumerate(regions)}
    exits = [_exits(flow, region) for region in regions]
    following = [[number_of[after] for _, after in leaving] for leaving in exits]
    ends = [
        [_ended(flow, region, last, after, convention) for last, after in leaving]
        for region, leaving in zip(regions, exits, strict=True)
    ]
    entry = _solve([_read_first(flow, region, convention) for region in regions], ends, following)
    live = [0] * len(flow.reads)
    for region, leaving in zip(regions, exits, strict=True):
        led: dict[int, int] = {}
        for last, after in leaving:
            led[last] = led.get(last, 0) | entry[number_of[after]]
        out = 0
        for index in reversed(region):
            out |= led.get(index, 0)
            live[index] = out | flow.reads[index] | flow.writes[index]
            out = flow.reads[index] | (out if _keeps(flow, index, convention) else out & ~flow.writes[index])
    return live


def _keeps(flow: Flow, index: int, convention: Convention) -> bool:
    """Return whether a guard keeps an instruction from ending earlier values inside its region."""
    guard = flow.guards[index]
    return bool(guard) and not (convention.guarded_ends and guard > UNIFORM_GUARD)


def _regions(flow: Flow) -> list[range]:
    """Return the code in pieces that are entered at their beginning only; a branch that may not be taken leaves a piece
    in its middle.
    """
    count = len(flow.reads)
    starts = {0, *flow.starts} if count else set()
    for index, after in enumerate(flow.successors):
        starts.update(one for one in after if one != index + 1)
        if index + 1 not in after:
            starts.add(index + 1)
    ordered = sorted(start for start in starts if start < count)
    return [range(a, b) for a, b in zip(ordered, [*ordered[1:], count], strict=True)]


def _exits(flow: Flow, region: range) -> list[tuple[int, int]]:
    """Return the ways out of a region: the instruction that leaves it, and the one that follows."""
    inside = region[1:]
    return [(index, after) for index in region for after in flow.successors[index] if after not in inside]


def _read_first(flow: Flow, region: range, convention: Convention) -> int:
    """Return what a region reads before it surely writes it."""
    read = 0
    for index in reversed(region):
        read = flow.reads[index] | (read if _keeps(flow, index, convention) else read & ~flow.writes[index])
    return read


def _ended(flow: Flow, region: range, last: int, after: int, convention: Convention) -> int:
    """Return the registers whose earlier values a region ends, if it is left from `last` to `after`."""
    ended, guard = 0, flow.guards[last] if last in flow.targets else 0
    if guard and after != flow.targets[last]:
        guard = _opposite(guard)
    for index in range(region[0], last + 1):
        own = flow.guards[index]
        if not own or (convention.guarded_ends and not (guard and own == _opposite(guard))):
            ended |= flow.writes[index]
    return ended


def _opposite(guard: int) -> int:
    return ((guard - 1) ^ 1) + 1


def _solve(reads: Sequence[int], ends: list[list[int]], following: list[list[int]]) -> list[int]:
    """Return what is live at the beginning of each region: the least solution, by a list of regions to look at
    again.
    """
    before: list[list[int]] = [[] for _ in reads]
    for number, after in enumerate(following):
        for one in after:
            before[one].append(number)
    entry, waiting, queued = [0] * len(reads), list(range(len(reads))), [True] * len(reads)
    while waiting:
        number = waiting.pop()
        queued[number] = False
        value = reads[number]
        for one, ended in zip(following[number], ends[number], strict=True):
            value |= entry[one] & ~ended
        if value != entry[number]:
            entry[number] = value
            for one in before[number]:
                if not queued[one]:
                    queued[one] = True
                    waiting.append(one)
    return entry


def register_sets(fields: Registers) -> list[int]:
    """Return for each instruction the set of registers that its fields name."""
    out = [0] * len(fields.count)
    rows, columns = np.nonzero(fields.count)
    kinds, firsts, counts = (array[rows, columns].tolist() for array in (fields.kind, fields.first, fields.count))
    for row, kind, first, count in zip(rows.tolist(), kinds, firsts, counts, strict=True):
        if kind in BASES:
            out[row] |= registers(Kind(kind), first, min(count, SIZES[Kind(kind)] - first))
    return out


def guards_of(decoded: Decoded) -> list[int]:
    """Return the guard of each instruction as `Flow` has it, 0 for none."""
    fields = decoded.registers
    uniform = (fields.kind[:, -1] == Kind.UNIFORM_PREDICATE).astype(np.int64)
    number = 1 + 2 * decoded.guard.astype(np.int64) + decoded.guard_negated + UNIFORM_GUARD * uniform
    none = (decoded.guard == NEVER_NEGATED) & ~decoded.guard_negated
    found: list[int] = np.where(none, 0, number).tolist()
    return found


def names_of(live: int) -> list[str]:
    """Return the names of a set's registers, such as R3, UR4, P0."""
    prefixes = {Kind.GPR: "R", Kind.UNIFORM: "UR", Kind.PREDICATE: "P", Kind.UNIFORM_PREDICATE: "UP"}
    found = []
    for kind, base in BASES.items():
        part = live >> base & ((1 << SIZES[kind]) - 1)
        found += [f"{prefixes[kind]}{number}" for number in range(part.bit_length()) if part >> number & 1]
    return found


def count_of(live: int, kind: Kind = Kind.GPR) -> int:
    """Return how many registers of a kind are in a set."""
    return (live >> BASES[kind] & ((1 << SIZES[kind]) - 1)).bit_count()
