"""How much work an item is, and who gets which items when the hardware hands them out.

The estimate counts the instructions that the busiest role executes, a weft-level product as the cycles that it keeps
the matrix unit busy; it only decides which cluster is simulated as the representative and, for schedules that hand out
items at run time, who gets which. It never enters a time.
"""

from __future__ import annotations

import heapq
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Count, Instruction, Role, WarpProgram
from heddle.machine.spec import Machine

Items = NDArray[np.int64]


def count_of(count: Count | None, program: WarpProgram) -> Items:
    """Return a loop count for each work item."""
    items = program.work.items
    if count is None:
        return np.ones(len(items), dtype=np.int64)
    base: Items | int = count.value
    if count.attribute is not None:
        base = items[:, program.work.attributes.index(count.attribute)]
    counts: Items = np.maximum(np.zeros(len(items), dtype=np.int64) + base + count.offset, 0)
    return counts


def role_code(program: WarpProgram, role: Role) -> tuple[int, int]:
    """Return the pc range [entry, end) of a role: up to and with its EXIT (or the end of the program)."""
    for pc in range(role.entry, len(program.instructions)):
        if OPCODES[program.instructions[pc].op].unit is Unit.EXIT:
            return role.entry, pc + 1
    return role.entry, len(program.instructions)


def _scale(program: WarpProgram, instruction: Instruction) -> Items | None:
    """Return by how much a LOOP or SKIP multiplies the executions of the instructions it spans, for each item."""
    unit = OPCODES[instruction.op].unit
    if unit is Unit.LOOP:
        times: Items = np.maximum(count_of(instruction.count, program), 1)  # the body runs before the first test
        return times
    if unit is Unit.SKIP and instruction.attribute is not None:
        taken: Items = program.work.items[:, program.work.attributes.index(instruction.attribute)] == 0
        return 1 - taken.astype(np.int64)
    return None


def _cost(instruction: Instruction, machine: Machine) -> int:
    """Return the cycles of a weft-level product in its matrix unit; 1 for every other instruction."""
    if OPCODES[instruction.op].unit is not Unit.WEFT_MMA or instruction.shape is None:
        return 1
    m, n, k = instruction.shape
    rate = machine.tensor_flops_per_cycle / machine.subpartitions * machine.tensor_rate_scale[instruction.dtype]
    return max(1, round(2 * m * n * k / rate))


def item_weights(program: WarpProgram, machine: Machine) -> Items:
    """Return for each work item the cycles of the instructions that its busiest role executes (`_cost`)."""
    heaviest = np.zeros(len(program.work.items), dtype=np.int64)
    costs = [0, *accumulate(_cost(instruction, machine) for instruction in program.instructions)]
    for role in program.roles:
        begin, end = role_code(program, role)
        spans: list[tuple[int, int, Items]] = []
        for pc in range(begin, end):
            scale = _scale(program, program.instructions[pc])
            target = program.instructions[pc].target
            if scale is not None and target is not None:
                spans.append((min(pc + 1, target), max(pc + 1, target), scale))
        cuts = sorted({begin, end, *(p for low, high, _ in spans for p in (low, high) if begin < p < end)})
        weight = np.zeros_like(heaviest)
        for low, high in pairwise(cuts):
            times = np.full_like(heaviest, costs[high] - costs[low])
            for first, last, scale in spans:
                if first <= low and high <= last:
                    times = times * scale
            weight += times
        heaviest = np.maximum(heaviest, weight)
    return heaviest


def items_inside(program: WarpProgram) -> NDArray[np.bool_]:
    """Return for each work item whether the first blocks that its CTAs access all lie inside their tensors."""
    inside = np.ones(len(program.work.items), dtype=np.bool_)
    for stream in program.streams:
        first = program.work.items[:, program.work.attributes.index(stream.base)]
        last = first + stream.cta_step * (program.cluster_size - 1)
        inside &= (first >= 0) & (np.maximum(first, last) < stream.blocks)
    return inside


def hand_out(weights: Items, takers: int) -> list[list[int]]:
    """Give items in order to whichever of `takers` is free first (ties: the lowest number); return the list of each."""
    lists: list[list[int]] = [[] for _ in range(takers)]
    free = [(0, taker) for taker in range(takers)]
    for item, weight in enumerate(weights.tolist()):
        busy_until, taker = heapq.heappop(free)
        lists[taker].append(item)
        heapq.heappush(free, (busy_until + weight, taker))
    return lists


def shares(weights: Items, takers: int) -> list[Items]:
    """Return the items of each taker as `hand_out` gives them; equal items go round, which needs no queue."""
    if (weights == weights[:1]).all():
        return [np.arange(taker, len(weights), takers) for taker in range(takers)]
    return [np.array(rows, dtype=np.int64) for rows in hand_out(weights, takers)]
