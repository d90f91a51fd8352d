"""Conditions d' to g in programs of mode fiber: bits, the unit's queue, the pipe, read ports.

A bit is "not before cycle x" as things stand, or not known; a candidate that waits for one is looked at again in that
cycle, or after the next change of the register. So is one that waits for a pipe or a queue, because a bit may hold it
up meanwhile, which would be another reason.
"""

from __future__ import annotations

from heddle.sim.core.accounting import credit
from heddle.sim.core.arbiter import queue_of_sub
from heddle.sim.core.bits import bit
from heddle.sim.core.blocked import NOT_SELECTED, blocked_by, credit_blocked, pipe_until, ports_until, queue_until
from heddle.sim.core.busy_bits import next_change, settle, wait_for
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    H_BITS,
    INF,
    P_COLD,
    P_PORTS,
    Q_BLOCKED,
    Q_INDEX,
    QUEUE_NONE,
    QUEUE_WEFT,
    TICK_BITS,
    W_BIT,
    W_DONE,
    W_HELD,
    W_OP_HEAD,
    W_OP_TAIL,
    W_ROW,
    W_SUB,
    W_SURE,
)
from heddle.sim.core.layout_fiber import (
    FLAG_TESTS,
    H_QUEUE_DEPTH,
    O_END,
    PARTS,
    QUEUED,
    R_COUNT,
    R_EMPTY,
    R_FULL,
    R_WORDS,
    V_COUNT,
    V_DECIDED,
    V_START,
    Y_ACCUMULATOR,
    Y_DST,
    Y_FLAGS,
    Y_SOURCE,
    Y_SOURCES,
)
from heddle.sim.core.matrix_ops import accumulates, op_at
from heddle.sim.core.registers import count_of, fiber_row, first_of
from heddle.sim.core.rows import is_off, queue_of
from heddle.sim.result import Stall

POOL_EMPTY, POOL_FULL, GMMA = int(Stall.POOL_EMPTY), int(Stall.POOL_FULL), int(Stall.GMMA)


def empty_in(M: State, warp: int, group: int, view: int, t: int) -> int:
    """Return the address of the first register of a group whose E a view sees in cycle t; 0 if there is none."""
    first = first_of(M, warp, group)
    for register in range(first, first + count_of(group) * R_WORDS, R_WORDS):
        if M[register + R_COUNT] != 0:
            settle(M, register, t)
        if M[register + R_EMPTY + view] & 1:
            return register
    return 0


def empty_accumulator(M: State, warp: int, group: int, view: int, t: int) -> int:
    """Do the same for accumulators, of which those are not tested that the weft's matrix instructions will write."""
    if M[warp + W_OP_HEAD] == M[warp + W_OP_TAIL]:
        return empty_in(M, warp, group, view, t)
    first = first_of(M, warp, group)
    for register in range(first, first + count_of(group) * R_WORDS, R_WORDS):
        if M[register + R_COUNT] != 0:
            settle(M, register, t)
        if M[register + R_EMPTY + view] & 1 and not accumulates(M, warp, register, t):
            return register
    return 0


def is_full(M: State, register: int, t: int) -> bool:
    """Tell whether a part of F of a register is set in cycle t."""
    if M[register + R_COUNT] != 0:
        settle(M, register, t)
    full = 0
    for part in range(PARTS):
        full |= M[register + R_FULL + part]
    return bool(full & 1)


def full_in(M: State, warp: int, group: int, t: int) -> int:
    """Return the address of the first register of a group that is full in cycle t; 0 if there is none."""
    first = first_of(M, warp, group)
    for register in range(first, first + count_of(group) * R_WORDS, R_WORDS):
        if is_full(M, register, t):
            return register
    return 0


def find_empty(M: State, P: Program, warp: int, fiber: int, t: int) -> int:
    """Return a source register that is empty for the warp in cycle t; 0 if there is none."""
    view = M[M[warp + W_SUB] + Q_INDEX]
    for slot in range(P[fiber + Y_SOURCES]):
        group = P[fiber + Y_SOURCE + slot]
        if group != 0:
            register = empty_in(M, warp, group, view, t)
            if register != 0:
                return register
    group = P[fiber + Y_ACCUMULATOR]
    return empty_accumulator(M, warp, group, view, t) if group != 0 else 0


def watch(M: State, warp: int, group: int, t: int) -> int:
    """Let a warp be looked at when a bit of a group changes; return the next cycle in which one will."""
    view, soon = M[M[warp + W_SUB] + Q_INDEX], INF
    first = first_of(M, warp, group)
    for register in range(first, first + count_of(group) * R_WORDS, R_WORDS):
        wait_for(M, register, warp)
        soon = min(soon, next_change(M, register, view, t))
    return int(soon)


def watch_one(M: State, warp: int, register: int, t: int) -> int:
    """Do so for one register."""
    wait_for(M, register, warp)
    return next_change(M, register, M[M[warp + W_SUB] + Q_INDEX], t)


def watch_all(M: State, P: Program, warp: int, fiber: int, t: int) -> int:
    """Do so for all registers of an instruction."""
    soon = watch(M, warp, P[fiber + Y_DST], t)
    for slot in range(P[fiber + Y_SOURCES]):
        soon = min(soon, watch(M, warp, P[fiber + Y_SOURCE + slot], t))
    soon = min(soon, watch(M, warp, P[fiber + Y_ACCUMULATOR], t))
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        end = M[op_at(M, warp, n) + O_END]
        if end > t:
            soon = min(soon, end)  # from then on an accumulator is tested
    return int(soon)


def weft_queue_until(M: State, sub: int) -> int:
    """Condition e of WMMA: return the cycle in which the instruction so far back starts, INF if not decided."""
    queue = queue_of_sub(M, sub)
    before = M[queue + V_COUNT] - M[H_QUEUE_DEPTH]
    if before < 0:
        return 0
    if before >= M[queue + V_DECIDED]:
        return INF
    return int(M[queue + V_START + (before & (QUEUED - 1))] >> TICK_BITS)


def place_until(M: State, P: Program, sub: int, warp: int, row: int) -> int:
    """Return the cycle from which there is a place in the unit's queue."""
    queue = queue_of(P, row)
    if queue == QUEUE_NONE:
        return 0
    return weft_queue_until(M, sub) if queue == QUEUE_WEFT else queue_until(M, P, sub, warp, row)


def weft_until(M: State, P: Program, sub: int, warp: int, t: int) -> int:
    """Return a cycle up to which the candidate is held up as things stand; account cycle t if that is later than t."""
    if M[warp + W_SURE] > t:
        return int(M[warp + W_SURE])
    row = M[warp + W_ROW]
    if is_off(M, P, warp, row):
        return 0
    fiber = fiber_row(M, row)
    if M[H_BITS] != 0 and P[fiber + Y_FLAGS] & FLAG_TESTS:
        register = find_empty(M, P, warp, fiber, t)
        if register != 0:
            return held(M, P, sub, warp, POOL_EMPTY, watch_one(M, warp, register, t), t)
        group = P[fiber + Y_DST]
        if group != 0 and full_in(M, warp, group, t) != 0:
            return held(M, P, sub, warp, POOL_FULL, watch_all(M, P, warp, fiber, t), t)
    queue, pipe = place_until(M, P, sub, warp, row), pipe_until(M, P, sub, row)
    until = max(pipe, queue)
    if P[row + P_PORTS] != 0:
        until = max(until, ports_until(M, P, sub, warp, row))
    if until <= t:
        return 0
    reason = blocked_by(P, P[row + P_COLD], queue, pipe, t)
    return held(M, P, sub, warp, reason, sure_until(M, P, warp, row, queue, pipe, t), t)


def sure_until(M: State, P: Program, warp: int, row: int, queue: int, pipe: int, t: int) -> int:
    """Return up to which cycle a candidate has the reason that it has in cycle t, as bits stand.

    Nobody enters a queue while it is full, or a pipe while it is busy. Ports, and a pipe behind a queue, are looked at
    in every cycle, because the queue or the pipe may be taken meanwhile.
    """
    until = queue
    if queue <= t:
        if pipe <= t or queue_of(P, row) != QUEUE_NONE:
            return t + 1
        until = pipe
    return min(until, watch_all(M, P, warp, fiber_row(M, row), t)) if M[H_BITS] != 0 else until


def held(M: State, P: Program, sub: int, warp: int, reason: int, until: int, t: int) -> int:
    """Account cycle t, in which a candidate is held up, and let it not be looked at before cycle `until`."""
    own = bit(M[warp + W_BIT])
    if M[sub + Q_BLOCKED] & own == 0:
        M[sub + Q_BLOCKED] |= own
        credit(M, P, warp, NOT_SELECTED, t)
    elif M[warp + W_DONE] < t:
        credit_blocked(M, P, sub, warp, t)
    M[warp + W_SURE] = until
    M[warp + W_HELD] = reason
    credit(M, P, warp, reason, t + 1)
    return until
