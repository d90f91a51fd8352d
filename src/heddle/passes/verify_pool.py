"""Check of the placement of pool and own registers, written without the allocator's data structures.

It marks, register by register, who lives where, and demands what the hardware asks of each name.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import InternalError
from heddle.ir.tile_walk import role_subpartitions
from heddle.ir.warp_fiber import SUBPARTITIONS, WINDOW
from heddle.machine.spec import Machine
from heddle.passes.draft import DraftProgram, Operand, RoleDraft

Register = tuple[int, int]
"""Subpartition and number."""
Owner = tuple[str, str]
"""("role", its name) or ("pool", the tensor)."""


@dataclass(frozen=True, slots=True)
class VerifyPool:
    """Raise InternalError if two owners share a register, or a register cannot be named or written where it is."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Check all operands of all roles and return the program unchanged."""
        owners: dict[Register, Owner] = {}
        for role in program.roles:
            for draft in role.code:
                for operand in (*draft.dst, *draft.src):
                    if operand.value.file in ("vector", "pool"):
                        _claim(owners, program, role, operand, machine)
                for operand in draft.dst:
                    if operand.value.file in ("vector", "pool"):
                        _writable(role, operand)
        _one_range(owners)
        return program


def _numbers(role: RoleDraft, operand: Operand) -> range:
    first = role.registers[operand.value.id] + operand.offset
    if operand.value.file == "vector":
        first += role.private_first
    return range(first, first + operand.count)


def _claim(
    owners: dict[Register, Owner], program: DraftProgram, role: RoleDraft, operand: Operand, machine: Machine
) -> None:
    pool = operand.value.file == "pool"
    owner: Owner = ("pool", operand.value.tile) if pool else ("role", role.body.name)
    numbers = _numbers(role, operand)
    size = 1
    while size < min(operand.count, 4):
        size *= 2
    if numbers[0] % size:
        raise InternalError(f"{role.body.name}: {operand.value.name} begins at register {numbers[0]}")
    for number in numbers:
        if number % WINDOW == WINDOW - 1 or not 0 <= number < machine.vector_registers // SUBPARTITIONS:
            raise InternalError(f"{role.body.name}: {operand.value.name} has register {number}, which no name reaches")
        homes = role_subpartitions(program.tile, role.body) if operand.place is None else (operand.place,)
        for home in homes:
            if owners.setdefault((home, number), owner) != owner:
                other = owners[home, number]
                raise InternalError(f"register {number} of a subpartition belongs to {other} and to {owner}")


def _writable(role: RoleDraft, operand: Operand) -> None:
    for number in _numbers(role, operand):
        if number // WINDOW != role.body.window:
            raise InternalError(
                f"{role.body.name} writes register {number}, which is not in its window {role.body.window}"
            )


def _one_range(owners: dict[Register, Owner]) -> None:
    pool = [number for (_, number), owner in owners.items() if owner[0] == "pool"]
    for (_, number), owner in owners.items():
        if pool and owner[0] == "role" and min(pool) <= number <= max(pool):
            raise InternalError(f"register {number} of role {owner[1]} lies inside the pool")
