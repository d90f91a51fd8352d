"""Which registers are live at each instruction: backward data flow over basic blocks, on sets of registers as integers.

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


@dataclass(frozen=True, slots=True)
class Convention:
    """How guarded writes and calls count.

    `guarded_ends`: towards earlier blocks a guarded write ends the earlier value's life, unless its guard is the
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
    blocks.
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
    blocks = _blocks(flow)
    first_of = {block[0]: number for number, block in enumerate(blocks)}
    following = [[first_of[after] for after in flow.successors[block[-1]]] for block in blocks]
    kills = [[_ended(flow, block, after, convention) for after in flow.successors[block[-1]]] for block in blocks]
    entry = _solve([_read_first(flow, block) for block in blocks], kills, following)
    live = [0] * len(flow.reads)
    for block, after in zip(blocks, following, strict=True):
        out = 0
        for number in after:
            out |= entry[number]
        for index in reversed(block):
            live[index] = out | flow.reads[index] | flow.writes[index]
            out = flow.reads[index] | (out if flow.guards[index] else out & ~flow.writes[index])
    return live


def _blocks(flow: Flow) -> list[range]:
    count = len(flow.reads)
    starts = {0, *flow.starts} if count else set()
    for index, after in enumerate(flow.successors):
        if list(after) != [index + 1]:
            starts.update(after)
            starts.add(index + 1)
    ordered = sorted(start for start in starts if start < count)
    return [range(a, b) for a, b in zip(ordered, [*ordered[1:], count], strict=True)]


def _read_first(flow: Flow, block: range) -> int:
    """Return what a block reads before it surely writes it."""
    read = 0
    for index in reversed(block):
        read = flow.reads[index] | (read if flow.guards[index] else read & ~flow.writes[index])
    return read


def _ended(flow: Flow, block: range, after: int, convention: Convention) -> int:
    """Return the registers whose earlier values a block ends, if `after` follows it."""
    ended, guard = 0, flow.guards[block[-1]] if block[-1] in flow.targets else 0
    if guard and after != flow.targets[block[-1]]:
        guard = _opposite(guard)
    for index in block:
        own = flow.guards[index]
        if not own or (convention.guarded_ends and not (guard and own == _opposite(guard))):
            ended |= flow.writes[index]
    return ended


def _opposite(guard: int) -> int:
    return ((guard - 1) ^ 1) + 1


def _solve(reads: Sequence[int], kills: list[list[int]], following: list[list[int]]) -> list[int]:
    """Return what is live at the beginning of each block: the least solution, by a list of blocks to look at again."""
    before: list[list[int]] = [[] for _ in reads]
    for number, after in enumerate(following):
        for one in after:
            before[one].append(number)
    entry, waiting, queued = [0] * len(reads), list(range(len(reads))), [True] * len(reads)
    while waiting:
        number = waiting.pop()
        queued[number] = False
        value = reads[number]
        for one, kill in zip(following[number], kills[number], strict=True):
            value |= entry[one] & ~kill
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
    number = 1 + 2 * decoded.guard.astype(np.int64) + decoded.guard_negated + 32 * uniform
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
