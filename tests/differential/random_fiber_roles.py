"""Roles of a random FIBER program: their private registers, control fields and code."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Control, Instruction, Register
from heddle.ir.warp_fiber import OWN, Bind

SUBPARTITIONS = 4
WINDOW = 256
ZONE = 40  # private registers of a weft
USABLE = 252  # of a window: whole quads without the register that reads as zero
ARITHMETIC = ["FFMA", "FADD", "IADD3", "MUFU", "F2FP", "SHFL", "MOV", "LOP3", "UMOV"]
SIGNALLED = {Unit.FIXED, Unit.VARIABLE, Unit.SHARED, Unit.GLOBAL, Unit.WEFT_MMA, Unit.TMEM_LOAD}


class FiberRole:
    """Code of one or four wefts. Their private registers are a zone of ZONE registers of a window."""

    def __init__(self, rng: random.Random, name: str, first: int, wefts: int, base: int, zone: int) -> None:
        self.rng, self.name, self.first, self.wefts, self.base = rng, name, first, wefts, base
        self.zone = zone * ZONE if base == 0 else USABLE - (zone + 1) * ZONE  # first index from the base on
        self.instructions: list[Instruction] = []
        self._marks: dict[str, int] = {}
        self._targets: dict[int, str] = {}

    @property
    def place(self) -> int:
        """The subpartition of the first weft."""
        return self.first % SUBPARTITIONS

    def mark(self, name: str) -> None:
        """Name the place of the next instruction."""
        self._marks[name] = len(self.instructions)

    def branch(self, op: str, mark: str, **fields: Any) -> None:
        """Append a branch to a mark."""
        self._targets[len(self.instructions)] = mark
        self.add(op, **fields)

    def add(self, op: str, **fields: Any) -> None:
        """Append an instruction with a random control field."""
        self.instructions.append(Instruction(op=op, control=self._control(op), **fields))

    def bound(self, bind: Bind, op: str, **fields: Any) -> None:
        """Append an instruction with a bind in front of it."""
        self.add("DEPBAR.BIND", bind=bind)
        self.add(op, **fields)

    def resolved(self, offset: int) -> list[Instruction]:
        """Return the code with program counters for marks, as it stands at `offset` in the program."""
        code = list(self.instructions)
        for index, mark in self._targets.items():
            code[index] = dataclasses.replace(code[index], target=self._marks[mark] + offset)
        return code

    def private(self, count: int = 1, first: int | None = None) -> Register:
        """Return a private register or group, at random unless `first` says where; spelled in one of two ways."""
        step = min(count, 4)
        index = self.zone + (self.rng.randrange(0, (ZONE - count) // step + 1) * step if first is None else first)
        if self.rng.random() < 0.4:
            return Register(self.base + index, count, False, OWN)
        return Register(index, count, count == 1 and self.rng.random() < 0.4)

    def sources(self, slots: int) -> tuple[Register, ...]:
        """Return private source slots."""
        choice = [self.private() for _ in range(3)] + [self.private(self.rng.choice([2, 4])), Register(RZ)]
        return tuple(self.rng.choice(choice) for _ in range(slots))

    def arithmetic(self) -> None:
        """Append an instruction on private registers."""
        by = self.rng.choice(["warp", "warp", "group", "role"])
        self.add(self.rng.choice(ARITHMETIC), dst=self.private(), src=self.sources(self.rng.randrange(0, 4)), by=by)

    def _control(self, op: str) -> Control:
        rng, counters = self.rng, range(6)
        sets = rng.random() < (0.4 if OPCODES[op].unit in SIGNALLED else 0.1)
        return Control(
            stall=rng.choice([1, 1, 1, 2, 4, 9, 0]),
            wait=frozenset(k for k in counters if rng.random() < 0.06),
            write_barrier=rng.choice(counters) if sets else None,
            read_barrier=rng.choice(counters) if rng.random() < 0.2 else None,
        )
