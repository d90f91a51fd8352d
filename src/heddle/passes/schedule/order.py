"""List scheduling of one block for one warp that has its subpartition to itself.

Two runs over the dependence graph, each cycle by cycle with one issue a cycle and the pipes' initiation intervals:
backwards from the end of the block, which gives every instruction its distance to the end (its critical path, and the
time that pipes need for what depends on it); then forwards, each cycle taking the instruction with the largest
distance among those whose operands are there, whose pipe is free and whose result fits into the registers. Equal
distances keep the source order.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from heddle.machine.spec import OpTiming
from heddle.passes.schedule.dependences import Edges, Graph
from heddle.passes.schedule.pressure import Pressure

Rank = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Options:
    """See `heddle.passes.schedule.Schedule`."""

    lookahead: int
    early_waits: bool


class Result(NamedTuple):
    """Instructions by index in their new order, and the cycle in which the last one issues."""

    order: list[int]
    cycles: int


def reorder(graph: Graph, distance: Sequence[int], pressure: Pressure, options: Options) -> Result:
    """Schedule a block forwards. `pressure` is left as it is after the block."""
    size = len(distance)
    done = [False] * size
    farthest = sorted(range(size), key=lambda i: -distance[i])
    oldest = far = 0  # first in source order, and first of `farthest`, that has not been issued

    def allowed(index: int) -> bool:
        if index == oldest:
            return True
        if index in graph.waits and (not options.early_waits or distance[index] < distance[farthest[far]]):
            return False
        return index <= oldest + options.lookahead and pressure.fits(index)

    def issued(index: int) -> None:
        nonlocal oldest, far
        pressure.issue(index)
        done[index] = True
        while oldest < size and done[oldest]:
            oldest += 1
        while far < size and done[farthest[far]]:
            far += 1

    ranks = [(-distance[i], i) for i in range(size)]
    times = _run(graph.timings, graph.after, graph.before, ranks, allowed, issued)
    return Result([index for index, _ in times], times[-1][1])


def in_order(graph: Graph) -> int:
    """Cycle of the last issue in source order."""
    now, free_at, issue = -1, dict[str, float](), [0] * len(graph.timings)
    for index, timing in enumerate(graph.timings):
        free = free_at.get(timing.pipe, 0)
        ready = (issue[earlier] + cycles for earlier, cycles in graph.before[index].items())
        now = issue[index] = max(now + 1, floor(free), *ready)
        free_at[timing.pipe] = max(free, now) + timing.initiation_cycles
    return now


def distances(graph: Graph) -> list[int]:
    """Cycles from each instruction's issue to the end of the block and of the copies that it starts, backwards."""
    depth = depths(graph)
    ranks = [(-depth[i], -i) for i in range(len(depth))]
    distance = [0] * len(depth)
    run = _run(graph.timings, graph.before, graph.after, ranks, lambda _: True, lambda _: None, graph.beyond)
    for index, cycle in run:
        distance[index] = cycle
    return distance


def depths(graph: Graph) -> list[int]:
    """The longest way by latencies from the start of the block to each instruction."""
    depth = [0] * len(graph.timings)
    for index, edges in enumerate(graph.after):
        for later, cycles in edges.items():
            depth[later] = max(depth[later], depth[index] + cycles)
    return depth


def _run(
    timings: Sequence[OpTiming],
    after: Sequence[Edges],
    before: Sequence[Edges],
    ranks: Sequence[Rank],
    allowed: Callable[[int], bool],
    issued: Callable[[int], None],
    earliest: Sequence[int] = (),
) -> list[tuple[int, int]]:
    """Instructions with their cycle, in order: always the allowed ready one of lowest rank, none before `earliest`."""
    missing = [len(edges) for edges in before]
    ready_at = list(earliest) or [0] * len(timings)
    free_at = {timing.pipe: 0.0 for timing in timings}
    waiting: dict[str, list[tuple[Rank, int]]] = {pipe: [] for pipe in free_at}  # by rank; nothing before them is left
    for index, count in enumerate(missing):
        if not count:
            insort(waiting[timings[index].pipe], (ranks[index], index))
    result: list[tuple[int, int]] = []
    now = 0
    while len(result) < len(timings):
        choice, soonest = _choose(waiting, free_at, ready_at, now, allowed)
        if choice is None:
            now = soonest
            continue
        index, pipe = choice[1], timings[choice[1]].pipe
        waiting[pipe].remove(choice)
        result.append((index, now))
        issued(index)
        free_at[pipe] = max(free_at[pipe], now) + timings[index].initiation_cycles
        for later, cycles in after[index].items():
            missing[later] -= 1
            ready_at[later] = max(ready_at[later], now + cycles)
            if not missing[later]:
                insort(waiting[timings[later].pipe], (ranks[later], later))
        now += 1
    return result


def _choose(
    waiting: dict[str, list[tuple[Rank, int]]],
    free_at: dict[str, float],
    ready_at: Sequence[int],
    now: int,
    allowed: Callable[[int], bool],
) -> tuple[tuple[Rank, int] | None, int]:
    """The instruction to issue now, or None and the next cycle in which one may be."""
    best: tuple[Rank, int] | None = None
    soonest = -1
    for pipe, entries in waiting.items():
        free = floor(free_at[pipe])
        for entry in entries:
            if best is not None and entry > best:
                break
            when = max(free, ready_at[entry[1]])
            if when > now and 0 <= soonest <= when:
                if free > now:
                    break  # the whole pipe is busy, and something else comes sooner
                continue
            if not allowed(entry[1]):
                continue
            if when <= now:
                best = entry
                break
            soonest = when
    return best, soonest
