"""Mode cuda-native: a SIMT program as it is, with one SET_FIBER_NUM of all its warps in front of every role."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.warp import Instruction, WarpProgram
from heddle.ir.warp_fiber import FIBERS


def cuda_native(program: WarpProgram) -> WarpProgram:
    """Return the program for mode cuda-native; branches to the entry of a role go behind its SETFIBER.

    Raises UserError if the program is not of mode simt.
    """
    if program.mode != "simt":
        raise UserError(f"{program.name} is of mode {program.mode}; mode cuda-native runs programs of mode simt")
    entries = sorted({role.entry for role in program.roles})
    instructions: list[Instruction] = []
    for pc, instruction in enumerate(program.instructions):
        if pc in entries:
            meeting = Instruction(op="SETFIBER", fibers=FIBERS * program.warps_per_cta, source=instruction.source)
            instructions.append(meeting)
        target = instruction.target
        moved = None if target is None else target + sum(entry <= target for entry in entries)
        instructions.append(replace(instruction, target=moved))
    roles = tuple(replace(r, entry=r.entry + sum(entry < r.entry for entry in entries)) for r in program.roles)
    return replace(program, instructions=tuple(instructions), roles=roles, mode="cuda-native")
