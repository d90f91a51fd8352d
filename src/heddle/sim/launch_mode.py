"""Which simulation answers by default: all SMs where that is cheap or one group cannot stand for them, else one group.

One group of SMs says little about a kernel of few rounds: who gets the items of a partly filled last round is decided
by cycles, CTAs that wait for each other are on different SMs, and the slowest of 132 SMs is later than a typical one.
With the rounds all of that becomes small against the kernel. Measured: docs/explanation/memory.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.launch import plan_launch
from heddle.sim.launch_work import item_weights, warp_instructions
from heddle.sim.memory_system import Mode

FEW_ROUNDS = 16
"""Items of the busiest place below which one group is not trusted: a round that half of the SMs skip is 3 % then."""
CHEAP = 20_000_000
"""Warp instructions of the whole chip that are always simulated: about three seconds on one core."""
AFFORDABLE = 60_000_000
"""The same where there are few rounds: about ten seconds."""
FIBER_COST = 6
"""Time that a warp instruction of mode fiber takes, in those of the other modes: the arbiter decides every cycle."""

MOST_OF_UNEQUAL = 150_000_000
"""Warp instructions of one group that are simulated at most if its items differ, so that few periods repeat: 12 s."""


def cost(program: WarpProgram, items: NDArray[np.int64] | None = None) -> int:
    """Return about how many warp instructions all items, or those in these rows of `work.items`, take to simulate.

    Those of mode fiber count as several of the others.
    """
    return warp_instructions(program, items) * (FIBER_COST if program.mode == "fiber" else 1)


def group_cost(program: WarpProgram, machine: Machine) -> int:
    """Return the cost of the group that represents the chip."""
    rows = (plan := plan_launch(program, machine)).group_items(plan.representative)
    return cost(program, rows[rows >= 0])


def check_group(program: WarpProgram, machine: Machine) -> None:
    """Raise UserError if the group that represents the chip takes longer to simulate than promised."""
    weights = item_weights(program, machine)
    own = group_cost(program, machine)
    if own > MOST_OF_UNEQUAL and (weights != weights[0]).any():
        raise UserError(
            f"the work of one SM of this {program.name} costs about {own:,} warp instructions, in items of different "
            f"length; at most {MOST_OF_UNEQUAL:,} are simulated, so that a run stays below 30 s on one core",
            hint="simulate a part, as half of the batch, and scale the time: beyond a few waves it grows with the work",
        )


def default_mode(program: WarpProgram, machine: Machine) -> Mode:
    """Return "chip" or "representative". Raises UserError if the program does not fit the machine."""
    plan = plan_launch(program, machine)
    rounds = max(len(rows) for rows in plan.items)
    return "chip" if cost(program) <= (AFFORDABLE if rounds < FEW_ROUNDS else CHEAP) else "representative"
