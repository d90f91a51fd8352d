"""Which simulation answers by default: all SMs where that is cheap or one group cannot stand for them, else one group.

One group of SMs says little about a kernel of few rounds: who gets the items of a partly filled last round is decided
by cycles, CTAs that wait for each other are on different SMs, and the slowest of 132 SMs is later than a typical one.
With the rounds all of that becomes small against the kernel. Measured: docs/explanation/memory.md.
"""

from __future__ import annotations

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.launch import plan_launch
from heddle.sim.launch_work import warp_instructions
from heddle.sim.memory_system import Mode

FEW_ROUNDS = 16
"""Items of the busiest place below which one group is not trusted: a round that half of the SMs skip is 3 % then."""
CHEAP = 20_000_000
"""Warp instructions of the whole chip that are always simulated: about three seconds on one core."""
AFFORDABLE = 60_000_000
"""The same where there are few rounds: about ten seconds."""
FIBER_COST = 6
"""Time that a warp instruction of mode fiber takes, in those of the other modes: the arbiter decides every cycle."""


def default_mode(program: WarpProgram, machine: Machine) -> Mode:
    """Return "chip" or "representative". Raises UserError if the program does not fit the machine."""
    plan = plan_launch(program, machine)
    cost = warp_instructions(program) * (FIBER_COST if program.mode == "fiber" else 1)
    rounds = max(len(rows) for rows in plan.items)
    return "chip" if cost <= (AFFORDABLE if rounds < FEW_ROUNDS else CHEAP) else "representative"
