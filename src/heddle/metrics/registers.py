"""Live-register profile of a warp program: how many vector registers of a role hold a value that is still needed.

Registers of the pool (mode fiber) belong to the FIBER-thread and not to a role; they are not counted here.

A plain backward data flow over the program's branches, one bit a register. It is independent of the compiler's own
liveness pass, so the two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, Role, WarpProgram
from heddle.metrics._pipes import is_matrix

_BRANCHES = (Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.SPLIT, Unit.REJOIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterProfile:
    """Live registers at each instruction [pc] of the whole program, and the instructions that each role reaches.

    `pool`: registers of each subpartition that pool tensors take (mode fiber), for all wefts together.
    """

    live: NDArray[np.int64]
    role_pcs: dict[str, NDArray[np.int64]]
    allocated: dict[str, int]  # registers a thread of each role
    pool: int = 0

    @property
    def peak(self) -> int:
        """Largest number of live registers anywhere."""
        return int(self.live.max(initial=0))

    def peak_of(self, role: str) -> int:
        """Largest number of live registers in the code of a role."""
        return int(self.live[self.role_pcs[role]].max(initial=0))

    def share_above(self, registers: int, role: str, issues: NDArray[np.int64] | None = None) -> float:
        """Share of a role's instructions with more than `registers` live; weighted by `issues` [pc] if given."""
        pcs = self.role_pcs[role]
        weights = np.ones(pcs.size, np.int64) if issues is None else issues[pcs]
        total = int(weights.sum())
        return float(weights[self.live[pcs] > registers].sum()) / total if total else 0.0


ACCUMULATOR = 2
"""Slot of the sum that a WMMA adds to, if it is not the destination."""


def register_profile(program: WarpProgram) -> RegisterProfile:
    """Compute the profile. Registers written count as live at their instruction even if nothing reads them."""
    live_after = _live_after(program)
    live = np.zeros(len(program.instructions), np.int64)
    for pc, instruction in enumerate(program.instructions):
        uses, kills = _uses_and_kills(program, instruction)
        written = _mask(instruction.dst)
        live[pc] = (written | uses | (live_after[pc] & ~kills)).bit_count()
    reached = {role.name: _reached(program, role) for role in program.roles}
    return RegisterProfile(
        live=live,
        role_pcs=reached,
        allocated={role.name: role.registers_per_thread for role in program.roles},
        pool=program.fiber.pool_limit - program.fiber.pool_first if program.fiber is not None else 0,
    )


def _mask(*registers: Register | None) -> int:
    bits = 0
    for register in registers:
        if register is not None and register.index != RZ and register.place is None:
            bits |= ((1 << register.count) - 1) << register.index
    return bits


def _uses_and_kills(program: WarpProgram, instruction: Instruction) -> tuple[int, int]:
    """Registers that the instruction needs, and those whose earlier value it replaces."""
    uses, kills = _mask(*instruction.src), _mask(instruction.dst)
    if instruction.by != "warp":
        kills = 0  # predicated off on the other warps of the role
    if is_matrix(instruction) and not _overwrites(program, instruction):
        return uses | _mask(instruction.dst), 0
    return uses, kills & ~uses


def _overwrites(program: WarpProgram, instruction: Instruction) -> bool:
    if OPCODES[instruction.op].unit is Unit.WEFT_MMA and len(instruction.src) > ACCUMULATOR:
        return True  # the sum that it adds to is a source
    if instruction.effect is None:
        return False
    return program.effects[instruction.effect].params.get("accumulate", 1) == 0


def successors(program: WarpProgram, pc: int) -> Iterator[int]:
    """Yield the program counters that may follow `pc`."""
    instruction = program.instructions[pc]
    unit = OPCODES[instruction.op].unit
    if unit is Unit.EXIT:
        return
    if unit in _BRANCHES and instruction.target is not None:
        yield instruction.target
    if pc + 1 < len(program.instructions):
        yield pc + 1


def _live_after(program: WarpProgram) -> list[int]:
    count = len(program.instructions)
    flow = [_uses_and_kills(program, instruction) for instruction in program.instructions]
    after = [0] * count
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(count)):
            bits = 0
            for successor in successors(program, pc):
                uses, kills = flow[successor]
                bits |= uses | (after[successor] & ~kills)
            if bits != after[pc]:
                after[pc], changed = bits, True
    return after


def _reached(program: WarpProgram, role: Role) -> NDArray[np.int64]:
    seen: set[int] = set()
    todo = [role.entry]
    while todo:
        pc = todo.pop()
        if pc not in seen:
            seen.add(pc)
            todo.extend(successors(program, pc))
    return np.array(sorted(seen), np.int64)
