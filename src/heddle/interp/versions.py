"""Versions of pool registers: whether each read finds its datum, in the engine's order (mode fiber).

A register counts the data that its producer has held there and those that its consumer has given back. A read takes
place at issue, that of a matrix instruction when the engine says that its operands are read; a write at issue. Found
are reads of a datum that is not there, or not any more, writes over a datum that nobody has read, and second producers.
Registers that no bind names are no channels: the verifier checks that tokens order their accesses, and a race on them
is a hazard as elsewhere (`heddle.interp._registers`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.interp.hazards import Hazard
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, Role, WarpProgram
from heddle.ir.warp_fiber import SUBPARTITIONS, TENSOR, Bind
from heddle.sim.result import EventKind

Key = tuple[int, int, int, int]
"""SM, slot, subpartition and register."""
_NO_BIND = Bind()
_ANYONE = -1


@dataclass(slots=True)
class _Version:
    """One register: data produced and given back, by reading subpartition if held for several, and who touched it last.

    `readers`: the subpartitions for which the last datum is held; one that stands for whoever reads it.
    """

    produced: int = 0
    readers: tuple[int, ...] = (_ANYONE,)
    consumed: dict[int, int] = field(default_factory=dict)
    producer: int = -1
    written_pc: int = -1
    read_pc: int = -1
    given_back_pc: int = -1

    def oldest(self) -> int:
        """Data that every reader so far has given back."""
        return min(self.consumed.get(reader, 0) for reader in self.readers)


@dataclass(slots=True)
class _Access:
    """An instruction of one weft, with what is bound to it."""

    pc: int
    weft: int
    cycle: int
    bind: Bind
    where: tuple[int, int]  # SM and slot


class Versions:
    """Follows the pool registers through a log; `found` are the hazards, one for each pair of instructions and kind."""

    def __init__(self, program: WarpProgram) -> None:
        assert program.fiber is not None
        self.program = program
        pool = range(program.fiber.pool_first, program.fiber.pool_limit)
        self.channels = frozenset(pool) & _bound(program)
        self.roles = {w: r for r in program.roles for w in range(r.first_warp, r.first_warp + r.warps)}
        self.registers: dict[Key, _Version] = {}
        self.found: dict[tuple[str, int, int], Hazard] = {}

    def replay(self, log: NDArray[Any]) -> None:
        """Replay the issues and operand reads of a log."""
        bound: dict[tuple[int, int, int], Bind] = {}
        waiting: dict[tuple[int, int, int], list[_Access]] = {}
        for record in _ordered(log).tolist():
            kind, sm, slot, weft, pc, begin, end = record
            who = (sm, slot, weft)
            if kind == EventKind.TENSOR:
                if waiting.get(who):
                    self._read(waiting[who].pop(0), end)
                continue
            instruction = self.program.instructions[pc]
            unit = OPCODES[instruction.op].unit
            if unit is Unit.BIND:
                bound[who] = instruction.bind or _NO_BIND
                continue
            access = _Access(pc, weft, begin, bound.pop(who, _NO_BIND), (sm, slot))
            if unit is Unit.WEFT_MMA:
                waiting.setdefault(who, []).append(access)
            else:
                self._read(access, begin)
            self._write(access)

    def _read(self, access: _Access, cycle: int) -> None:
        instruction = self.program.instructions[access.pc]
        for slot, source in enumerate(instruction.src):
            gives_back = slot in access.bind.consume
            for key in self._keys(access, source):
                version = self.registers.setdefault(key, _Version())
                if version.producer == access.weft:
                    continue
                reader = _ANYONE if version.readers == (_ANYONE,) else access.weft % SUBPARTITIONS
                done = version.consumed.get(reader, 0)
                if done >= version.produced:
                    other = version.given_back_pc if version.given_back_pc >= 0 else version.written_pc
                    self._report("stale read", key, access, other, cycle, "reads a datum that is not there")
                elif done + 1 < version.produced:
                    text = "reads a datum after the next one has been written"
                    self._report("overwritten before read", key, access, version.written_pc, cycle, text)
                version.read_pc = access.pc
                if gives_back:
                    version.consumed[reader] = done + 1
                    version.given_back_pc = access.pc

    def _write(self, access: _Access) -> None:
        instruction = self.program.instructions[access.pc]
        if instruction.dst is None:
            return
        for key in self._keys(access, instruction.dst):
            version = self.registers.setdefault(key, _Version())
            if version.producer >= 0 and version.producer != access.weft:
                kind = "double produce" if access.bind.hold else "lost update"
                text = f"writes what weft {version.producer} produces"
                self._report(kind, key, access, version.written_pc, access.cycle, text)
            elif version.produced > version.oldest():
                text = "overwrites a datum that has not been given back"
                self._report("overwritten before read", key, access, version.written_pc, access.cycle, text)
            version.produced += access.bind.hold
            version.readers = access.bind.readers or (_ANYONE,)
            version.producer, version.written_pc = access.weft, access.pc

    def _keys(self, access: _Access, register: Register) -> Iterator[Key]:
        """Pool registers of an operand."""
        if (register.place is None and register.index == RZ) or register.place == TENSOR:
            return  # columns of tensor memory have histories like shared memory
        role: Role = self.roles[access.weft]
        own = register.place is None or register.place < 0
        where = access.weft % SUBPARTITIONS if own else int(register.place or 0)
        first = register.index + (role.base if register.place is None else 0)
        for number in range(first, first + register.count):
            if number in self.channels:
                yield (*access.where, where, number)

    def _report(self, kind: str, key: Key, access: _Access, other: int, cycle: int, text: str) -> None:
        found = self.found.get((kind, access.pc, other))
        if found is not None:
            found.times += 1
            return
        lines = (self._line(access.pc), *([self._line(other)] if other >= 0 else []))
        partner = f"; the other access is {self._what(other)}" if other >= 0 else ""
        name = f"register {key[3]} of subpartition {key[2]}"
        full = f"{kind}: weft {access.weft} at cycle {cycle}, {self._what(access.pc)}, {text} in {name}{partner}"
        self.found[kind, access.pc, other] = Hazard(kind, name, full, lines, cycle)

    def _line(self, pc: int) -> str:
        source = self.program.sources[self.program.instructions[pc].source]
        return f"{source.file}:{source.line}"

    def _what(self, pc: int) -> str:
        instruction: Instruction = self.program.instructions[pc]
        return f"{instruction.op} at {self._line(pc)}"


def _bound(program: WarpProgram) -> frozenset[int]:
    """Registers that some instruction holds or gives back."""
    found: set[int] = set()
    rows = program.instructions
    for before, row in itertools.pairwise(rows):
        if before.bind is not None:
            held = [row.dst] if before.bind.hold else []
            for register in (*held, *(row.src[slot] for slot in before.bind.consume)):
                if register is not None and register.place is not None:
                    found |= set(range(register.index, register.index + register.count))
    return frozenset(found)


def version_hazards(program: WarpProgram, log: NDArray[Any]) -> list[Hazard]:
    """Return the hazards on pool registers in a log of every cycle; none in a program without bits."""
    if program.mode != "fiber" or not any(instruction.bind for instruction in program.instructions):
        return []
    versions = Versions(program)
    versions.replay(log)
    return list(versions.found.values())


def _ordered(log: NDArray[Any]) -> NDArray[Any]:
    """Issues, and ends of operand reads before the issues of the same cycle, in order."""
    events = log[np.isin(log["kind"], [EventKind.ISSUE, EventKind.TENSOR])]
    issue = events["kind"] == EventKind.ISSUE
    time = np.where(issue, events["begin"], events["end"])
    order = np.lexsort((np.arange(events.size), issue, time))
    columns: NDArray[Any] = events[["kind", "sm", "slot", "warp", "pc", "begin", "end"]][order]
    return columns
