"""Pass 4c (mode fiber): give tiles of tensor memory their groups of 32 columns.

All tiles live from set_fiber_num to the end, so they lie side by side in the order of their declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heddle.machine.spec import Machine
from heddle.passes.draft import DraftProgram
from heddle.passes.select.tensor_groups import first_groups, tensor_value


@dataclass(frozen=True, slots=True)
class PlaceTensorMemory:
    """Give every tile its first group; `emit` reports tiles that do not fit."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Place all tiles; nothing changes in a program without tensor memory."""
        places = {tensor_value(program.tile, t.name).id: first for t, first, _ in first_groups(program.tile)}
        roles = tuple(replace(role, registers={**role.registers, **places}) for role in program.roles)
        return replace(program, roles=roles)
