"""Pass 2b: order runs of arithmetic so that pipes work side by side, as an assembler does (sm_100).

Warps issue in order: an exponential that waits for its pipe holds up the additions behind it. Inside a long run of
arithmetic on vector registers the pass picks, again and again, the instruction that can start first, from a window of
the next few in program order. Dependences keep their order, and so do instructions with a data effect. Kernels for
sm_80 and sm_90 are written in the order of compiled library code and stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise

from heddle.ir.opcodes import OPCODES, Unit
from heddle.machine.spec import Machine
from heddle.passes.draft import Draft, DraftProgram, Operand
from heddle.passes.timing import is_real, timing

ARITHMETIC = frozenset({Unit.FIXED, Unit.VARIABLE})
NOT_MOVED = frozenset({"FENCE", "NOP", "BRA", "S2R", "R2UR"})
LEAST_RUN = 16  # instructions; shorter runs are address arithmetic
WINDOW = 48  # instructions that may move ahead: more would only lengthen the lives of registers


@dataclass(frozen=True, slots=True)
class ScheduleArithmetic:
    """Reorder the runs of all roles of a program for one of `architectures`."""

    architectures: tuple[str, ...] = ("sm_100",)

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Return the program with its arithmetic reordered."""
        if program.tile.architecture not in self.architectures:
            return program
        roles = tuple(replace(role, code=_role(role.code, machine)) for role in program.roles)
        return replace(program, roles=roles)


def _role(code: tuple[Draft, ...], machine: Machine) -> tuple[Draft, ...]:
    result: list[Draft] = []
    run: list[Draft] = []
    for draft in code:
        if _moves(draft):
            run.append(draft)
            continue
        result += _ordered(run, machine)
        run = []
        result.append(draft)
    return tuple(result + _ordered(run, machine))


def _moves(draft: Draft) -> bool:
    """Whether an instruction is arithmetic on vector registers, or a store of them to tensor memory."""
    if not is_real(draft) or draft.op in NOT_MOVED or draft.target or draft.after:
        return False
    unit = OPCODES[draft.op].unit
    if unit is Unit.TMEM_STORE:
        return True
    return unit in ARITHMETIC and all(o.value.file == "vector" for o in draft.dst + draft.src)


@dataclass(slots=True)
class _Node:
    """An instruction of a run: how many it still waits for, who waits for it and how long, its earliest cycle."""

    waits: int = 0
    ready: int = 0
    followers: dict[int, int] = field(default_factory=dict)


def _ordered(run: list[Draft], machine: Machine) -> list[Draft]:
    """Return a run in the order in which its instructions can start."""
    if len(run) < LEAST_RUN:
        return run
    nodes, timings = _graph(run, machine), [timing(machine, draft.row) for draft in run]
    demand: dict[str, int] = defaultdict(int)  # cycles that the run needs of each pipe: the scarcest comes first
    for timed in timings:
        demand[timed.pipe] += timed.gap
    pipes: dict[str, int] = defaultdict(int)
    waiting = list(range(len(run)))
    order: list[int] = []
    now = 0
    while waiting:
        free = [i for i in waiting[:WINDOW] if nodes[i].waits == 0]
        start, _, chosen = min(
            (max(now, nodes[i].ready, pipes[timings[i].pipe]), -demand[timings[i].pipe], i) for i in free
        )
        now = start + 1
        pipes[timings[chosen].pipe] = start + timings[chosen].gap
        for follower, distance in nodes[chosen].followers.items():
            nodes[follower].waits -= 1
            nodes[follower].ready = max(nodes[follower].ready, start + distance)
        waiting.remove(chosen)
        order.append(chosen)
    return [run[i] for i in order]


def _graph(run: list[Draft], machine: Machine) -> list[_Node]:
    """Dependences inside a run, with the cycles from one issue to the next."""
    nodes = [_Node() for _ in run]
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], list[int]] = defaultdict(list)
    effects = [i for i, draft in enumerate(run) if draft.row.effect is not None]
    for first, second in pairwise(effects):
        _follow(nodes, first, second, 1)
    for i, draft in enumerate(run):
        for place in _places(draft.reads()):
            if place in writer:
                _follow(nodes, writer[place], i, timing(machine, run[writer[place]].row).latency or 1)
            readers[place].append(i)
        for place in _places(draft.dst):
            for first in {*readers.pop(place, ()), writer.get(place, i)} - {i}:
                _follow(nodes, first, i, 1)
            writer[place] = i
    return nodes


def _follow(nodes: list[_Node], first: int, second: int, distance: int) -> None:
    followers = nodes[first].followers
    if second not in followers:
        nodes[second].waits += 1
    followers[second] = max(distance, followers.get(second, 0))


def _places(operands: tuple[Operand, ...]) -> list[tuple[int, int]]:
    return [place for operand in operands for place in operand.elements()]
