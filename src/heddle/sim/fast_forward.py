"""Set-up of the exact fast-forward (`core.fast_forward`): its buffer, and the warp whose loop is watched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Role, WarpProgram
from heddle.sim.core import fast_forward as f
from heddle.sim.core import layout as c
from heddle.sim.core.layout_fiber import FIBER_COUNTS
from heddle.sim.core.memory_forward import memory_state_words
from heddle.sim.core.memory_layout import COUNTERS, COUNTERS_END
from heddle.sim.state import Extent


def loop_length(program: WarpProgram, role: Role) -> int:
    """Return the number of instructions of a role's longest loop; the role with the longest is the slowest."""
    longest = 0
    for pc in range(role.entry, len(program.instructions)):
        instruction = program.instructions[pc]
        unit = OPCODES[instruction.op].unit
        if unit is Unit.LOOP and instruction.target is not None:
            longest = max(longest, pc - instruction.target + 1)
        if unit is Unit.EXIT:
            break
    return longest


def anchor_warp(program: WarpProgram, extent: Extent) -> int:
    """Return the address of the first warp of the role with the longest loop, 0 if no role has a loop."""
    role = max(program.roles, key=lambda role: loop_length(program, role))
    return extent.warp(0, 0, role.first_warp) if loop_length(program, role) else 0


class FastForward:
    """The buffer of the fast-forward and what it has skipped."""

    def __init__(self, program: WarpProgram, extent: Extent, memory: NDArray[np.int64], *, enabled: bool) -> None:
        self.anchor = anchor_warp(program, extent) if enabled else 0
        if not self.anchor:
            self.buffer = np.zeros(f.F_WORDS, dtype=np.int64)
            return
        contexts = extent.sms * c.SUBPARTITIONS * extent.bits
        counts = contexts * (2 * c.LEVELS + c.REASONS) + len(program.instructions) * c.REASONS
        counts += 2 * extent.sms + FIBER_COUNTS + extent.mbarriers + 1 + COUNTERS_END - COUNTERS
        room = extent.base["contexts"] + f.EVENTS * c.E_WORDS + int(memory_state_words(memory)) + 1024
        self.buffer = np.zeros(f.F_WORDS + counts + 2 * room, dtype=np.int64)
        self.buffer[f.F_COUNTS] = f.F_WORDS
        self.buffer[f.F_STATE] = f.F_WORDS + counts
        self.buffer[f.F_CURRENT] = f.F_WORDS + counts + room
        self.buffer[f.F_ROOM] = room
        self.buffer[f.F_ITEM] = -1
        self.buffer[f.F_POWER] = 1

    @property
    def cycles(self) -> int:
        """Cycles skipped so far."""
        return int(self.buffer[f.F_SKIPPED])

    @property
    def repeats(self) -> list[tuple[int, int, int]]:
        """The skips so far (the last `core.fast_forward.LIST` of them): begin and end of the period, times skipped."""
        count = int(self.buffer[f.F_REPEATS])
        first = max(0, count - f.LIST)
        places = [f.F_LIST + 3 * (i % f.LIST) for i in range(first, count)]
        return [(int(self.buffer[p]), int(self.buffer[p + 1]), int(self.buffer[p + 2])) for p in places]
