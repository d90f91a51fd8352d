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


def role_weights(program: WarpProgram, role: Role, costs: list[int]) -> Items:
    """Return for each work item the sum of `costs` (by pc) over the instructions that a warp of the role executes."""
    begin, end = role_code(program, role)
    before = [0, *accumulate(costs)]
    spans: list[tuple[int, int, Items]] = []
    for pc in range(begin, end):
        scale = _scale(program, program.instructions[pc])
        target = program.instructions[pc].target
        if scale is not None and target is not None:
            spans.append((min(pc + 1, target), max(pc + 1, target), scale))
    cuts = sorted({begin, end, *(p for low, high, _ in spans for p in (low, high) if begin < p < end)})
    weight = np.zeros(len(program.work.items), dtype=np.int64)
    for low, high in pairwise(cuts):
        times = np.full_like(weight, before[high] - before[low])
        for first, last, scale in spans:
            if first <= low and high <= last:
                times = times * scale
        weight += times
    return weight


def item_weights(program: WarpProgram, machine: Machine) -> Items:
    """Return for each work item the cycles of the instructions that its busiest role executes (`_cost`)."""
    heaviest = np.zeros(len(program.work.items), dtype=np.int64)
    costs = [_cost(instruction, machine) for instruction in program.instructions]
    for role in program.roles:
        heaviest = np.maximum(heaviest, role_weights(program, role, costs))
    return heaviest


def warp_instructions(program: WarpProgram, items: Items | None = None) -> int:
    """Return about how many instructions all warps execute for these items (all without), within a factor of two."""
    rows = slice(None) if items is None else items
    ones = [1] * len(program.instructions)
    warps = [int(role_weights(program, role, ones)[rows].sum()) * role.warps for role in program.roles]
    return sum(warps) * program.cluster_size


def items_inside(program: WarpProgram) -> NDArray[np.bool_]:
    """Return for each work item whether the first blocks that its CTAs access all lie inside their tensors."""
    inside = np.ones(len(program.work.items), dtype=np.bool_)
    for stream in program.streams:
        first = program.work.items[:, program.work.attributes.index(stream.base)]
        last = first + stream.cta_step * (program.cluster_size - 1)
        inside &= (first >= 0) & (np.maximum(first, last) < stream.blocks)
    return inside


def _order(takers: int, groups: int) -> Items:
    """Return the takers in the order in which places come free together: group by group, all slots of one at once.

    CTAs that share an SM started together and wait for the same units, so that they end within cycles of each other,
    while SMs differ by what they waited for at L2 and DRAM. So a partly filled last round fills whole SMs.
    """
    numbers = np.arange(takers, dtype=np.int64)
    order: Items = np.lexsort((numbers // groups, numbers % groups))
    return order


def hand_out(weights: Items, takers: int, groups: int | None = None) -> list[list[int]]:
    """Give items in order to whichever of `takers` is free first; return the list of each.

    Ties: at the start the lowest number (slot by slot), later the slots of one of the `groups` after the other.
    """
    lists: list[list[int]] = [[] for _ in range(takers)]
    rank = np.argsort(_order(takers, groups or takers)).tolist()
    free = [(0, taker, taker) for taker in range(takers)]
    for item, weight in enumerate(weights.tolist()):
        busy_until, _, taker = heapq.heappop(free)
        lists[taker].append(item)
        heapq.heappush(free, (busy_until + weight, rank[taker], taker))
    return lists


def shares(weights: Items, takers: int, groups: int) -> list[Items]:
    """Return the items of each taker as `hand_out` gives them; equal items go round, which needs no queue."""
    if not (weights == weights[:1]).all():
        return [np.array(rows, dtype=np.int64) for rows in hand_out(weights, takers, groups)]
    later = np.argsort(_order(takers, groups)) + takers
    return [
        np.concatenate([np.array([taker], dtype=np.int64), np.arange(first, len(weights), takers)])
        for taker, first in enumerate(later.tolist())
    ]
