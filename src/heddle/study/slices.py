"""Cycles of a large problem from a slice of it: its first waves, with the loop over k cut short.

Used where simulating every candidate in full would take long: to compare tiles and to begin the search for the clock.
The answer itself is always simulated in full. A slice keeps the program, the tensors, the order of the items and the
launch; what it leaves out repeats: waves (measured between the middle and the end of the slice) and turns of the loop
(measured against a slice with half the turns). The L2 starts empty where the whole problem does not fit it: a large
problem finds nothing there that it can use. How good the choice is: docs/explanation/tile_choice.md.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from heddle import metrics, pipeline
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import FOLLOWING, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.launch import LaunchPlan, plan_launch
from heddle.sim.launch_work import item_weights
from heddle.sim.memory_spaces import stream_spaces
from heddle.sim.memory_system import L2State
from heddle.sim.result import SimResult

SLICE_TURNS = 400_000
"""Loop turns of a slice."""
FIBER_SLICE_TURNS = 40_000
"""The same in mode fiber; where it is not known what an item costs, `LEAST_WAVES` are taken."""
LEAST_WAVES = 4
"""Items of each cluster in a slice: half to settle, half to measure."""


def estimated(program: WarpProgram, machine: Machine, *, clock_mhz: float, l2_state: L2State) -> tuple[int, float]:
    """Return the cycles and the tensor use that the whole program would have. Raises UserError as `simulate` does."""
    plan = plan_launch(program, machine)
    waves, most = _extent(program, plan)
    state = _state(program, machine, l2_state)

    def simulated(most_turns: int) -> tuple[SimResult, NDArray[np.int64]]:
        part = cut(program, waves * plan.clusters, most_turns)
        result = pipeline.simulate_program(part, machine, clock_mhz=clock_mhz, l2_state=state)
        return result, _item_turns(part, machine)[_own_items(plan_launch(part, machine))]

    result, turns = simulated(most)
    needed = _item_turns(program, machine)[_own_items(plan)]
    assert result.item_done_cycles is not None
    done = np.sort(result.item_done_cycles[result.item_done_cycles > 0])
    half = len(done) // 2
    missing = len(needed) - len(done)
    cycles = float(result.cycles)
    if missing and half and _counted(program) is None:  # items differ, and the first ones may be the longest
        cycles += (needed.sum() - turns.sum()) * (done[-1] - done[half - 1]) / turns[half:].sum()
    elif missing and half:
        cycles += missing * (done[-1] - done[half - 1]) / (len(done) - half)
    left_out = needed.sum() - turns.sum() - missing * turns[half:].mean()
    if left_out and most > 1:
        shorter, fewer = simulated(most // 2)
        cycles += left_out * (result.cycles - shorter.cycles) / (turns.sum() - fewer.sum())
    whole = dataclasses.replace(result, cycles=round(cycles))
    return whole.cycles, metrics.tensor_utilization(whole, program, machine)


def cut(program: WarpProgram, rows: int, most: int) -> WarpProgram:
    """Return the program with its first `rows` work items, each of at most `most` turns where items say how many."""
    work = program.work
    items = work.items[:rows].copy()
    counted = _counted(program)
    if counted is not None:
        items[:, counted] = np.minimum(items[:, counted], most)
    following = [name.startswith(FOLLOWING) for name in work.attributes]
    items[max(0, len(items) - work.grid) :, following] = 0  # nothing follows the last wave of a slice
    return dataclasses.replace(program, work=dataclasses.replace(work, items=items, grid=min(work.grid, len(items))))


def _counted(program: WarpProgram) -> int | None:
    """Return the attribute that counts the loops of an item, None if there is none or more than one."""
    loops = [i for i in program.instructions if OPCODES[i.op].unit is Unit.LOOP]
    names = {loop.count.attribute for loop in loops if loop.count and loop.count.attribute}
    return program.work.attributes.index(names.pop()) if len(names) == 1 else None


def _item_turns(program: WarpProgram, machine: Machine) -> NDArray[np.int64]:
    """Return the turns of the loop by item; the work that the launch plan sees in it if items do not say how many."""
    counted = _counted(program)
    return item_weights(program, machine) if counted is None else program.work.items[:, counted]


def _own_items(plan: LaunchPlan) -> NDArray[np.int64]:
    """Return the items of the representative SMs in the order in which they come."""
    rows = plan.group_items(plan.representative)
    return rows[rows >= 0]


def _extent(program: WarpProgram, plan: LaunchPlan) -> tuple[int, int]:
    """Return the waves of a slice and the most turns of an item in it."""
    counted = _counted(program)
    longest = 1 if counted is None else max(1, int(program.work.items[:, counted].max()))
    budget = SLICE_TURNS
    if program.mode == "fiber":
        budget = FIBER_SLICE_TURNS if counted is not None else 0
    waves = max(LEAST_WAVES, budget // (plan.clusters * longest) // 2 * 2)
    waves = min(waves, max(len(rows) for rows in plan.items))
    return waves, min(longest, max(1, budget // (plan.clusters * waves)))


def _state(program: WarpProgram, machine: Machine, l2_state: L2State) -> L2State:
    """Return the state of L2 in which a slice begins."""
    spaces = {space.number: space for space in stream_spaces(program)}.values()
    footprint = sum(space.blocks * space.pieces * space.piece_bytes for space in spaces)
    return "cold" if l2_state == "warm" and footprint > machine.l2_bytes else l2_state
