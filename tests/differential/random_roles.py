"""Builds the code of one role of a random program: registers, control fields, branches."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Control, Instruction, Register

ARITHMETIC = ["FFMA", "FADD", "FMUL", "IADD3", "MUFU", "F2FP", "SHFL", "HADD2", "MOV", "LOP3", "FMNMX", "UMOV", "HMMA"]
RESULT_UNITS = {Unit.FIXED, Unit.VARIABLE, Unit.SHARED, Unit.GLOBAL, Unit.TMEM_LOAD, Unit.TMEM_STORE}


class RoleBuilder:
    """Code of a role; branch targets are named marks until `resolved`."""

    def __init__(self, rng: random.Random, name: str, first_warp: int, warps: int, leader_only: bool) -> None:
        self.rng = rng
        self.name, self.first_warp, self.warps, self.leader_only = name, first_warp, warps, leader_only
        self.registers = rng.choice([16, 24, 40])
        self.instructions: list[Instruction] = []
        self._marks: dict[str, int] = {}
        self._targets: dict[int, str] = {}  # instruction -> mark

    @property
    def is_warp_group(self) -> bool:
        """Whether the role consists of whole warp groups."""
        return self.warps % 4 == 0 and self.first_warp % 4 == 0

    def mark(self, name: str) -> None:
        """Name the place of the next instruction."""
        self._marks[name] = len(self.instructions)

    def branch(self, op: str, mark: str, **fields: Any) -> None:
        """Append a branch to a mark."""
        self._targets[len(self.instructions)] = mark
        self.add(op, **fields)

    def add(self, op: str, **fields: Any) -> None:
        """Append an instruction with a random control field unless one is given."""
        fields.setdefault("control", self.control(op))
        self.instructions.append(Instruction(op=op, **fields))

    def resolved(self, offset: int) -> list[Instruction]:
        """Return the code with program counters for marks, as it stands at `offset` in the program."""
        code = list(self.instructions)
        for index, mark in self._targets.items():
            code[index] = dataclasses.replace(code[index], target=self._marks[mark] + offset)
        return code

    def control(self, op: str) -> Control:
        """Return a random control field."""
        rng, unit = self.rng, OPCODES[op].unit
        counters = range(6)
        wait = frozenset(k for k in counters if rng.random() < 0.1)
        sets = rng.random() < (0.6 if unit in RESULT_UNITS else 0.1)
        return Control(
            stall=rng.choice([1, 1, 1, 2, 4, 6, 15, 0]),
            wait=wait,
            write_barrier=rng.choice(counters) if sets else None,
            read_barrier=rng.choice(counters) if rng.random() < 0.2 else None,
        )

    def register(self, count: int = 1) -> Register:
        """Return a random aligned register group, sometimes the zero register."""
        if count == 1 and self.rng.random() < 0.15:
            return Register(RZ)
        index = self.rng.randrange(0, self.registers // count) * count
        return Register(index, count, count == 1 and self.rng.random() < 0.4)

    def sources(self, slots: int) -> tuple[Register, ...]:
        """Return random source slots; repeats are likely, so that the reuse cache matters."""
        pool = [self.register() for _ in range(3)] + [self.register(self.rng.choice([2, 4]))]
        return tuple(self.rng.choice(pool) for _ in range(slots))

    def arithmetic(self, count: int) -> None:
        """Append arithmetic."""
        for _ in range(count):
            op = self.rng.choice(ARITHMETIC)
            if op == "HMMA":
                added = self.rng.choice([(), (), (Register(RZ),), (self.register(4),)])
                sources = (self.register(4), self.register(2), *added)
                self.add(op, dst=self.register(4), src=sources, shape=(16, 8, 16), dtype="fp16")
            else:
                by = self.rng.choice(["warp", "warp", "warp", "group", "role"])
                self.add(op, dst=self.register(), src=self.sources(self.rng.randrange(0, 4)), by=by)
