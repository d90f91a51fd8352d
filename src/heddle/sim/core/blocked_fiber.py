"""Conditions d' to g in programs of mode fiber: bits, the unit's queue, the pipe, read ports.

A candidate that waits for a bit is looked at again when that is cleared. One that waits for something else is looked at
when a bit is set that it tests, because that would be another reason.
"""

from __future__ import annotations

from heddle.sim.core.accounting import credit
from heddle.sim.core.arbiter import queue_of_sub
from heddle.sim.core.bits import bit, cold, ctz, drop_lowest
from heddle.sim.core.blocked import NOT_SELECTED, blocked_by, credit_blocked, pipe_until, ports_until, queue_until
from heddle.sim.core.clears import clear_due
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    FLAG_BITS,
    FLAG_FULL,
    FLAGS_BY_OR_QUEUE,
    INF,
    P_COLD,
    P_FLAGS,
    P_PORTS,
    Q_BIT_WAIT,
    Q_BLOCKED,
    Q_HELD,
    Q_HELD_NEXT,
    Q_PASSED,
    Q_SENSITIVE,
    Q_WARPS,
    QUEUE_NONE,
    QUEUE_WEFT,
    TICK_BITS,
    W_BIT,
    W_DONE,
    W_HELD,
    W_OP_HEAD,
    W_OP_TAIL,
    W_ROW,
    W_SURE,
    W_TOUCHED,
    W_VIEW,
    W_WAIT,
    W_WORDS,
    WORD_BITS,
)
from heddle.sim.core.layout_fiber import (
    H_QUEUE_DEPTH,
    O_END,
    QUEUED,
    TEST_BASE_BITS,
    TEST_OWN,
    TESTS_BITS,
    V_COUNT,
    V_DECIDED,
    V_START,
    Y_ACCUMULATOR,
    Y_TEST,
    Y_TESTS,
    Y_TOUCHED,
)
from heddle.sim.core.matrix_ops import not_accumulated, op_at
from heddle.sim.core.registers import fiber_row
from heddle.sim.core.rows import is_off, queue_of
from heddle.sim.result import Stall

POOL_EMPTY, POOL_FULL, GMMA = int(Stall.POOL_EMPTY), int(Stall.POOL_FULL), int(Stall.GMMA)


def find_set(M: State, P: Program, warp: int, at: int, count: int) -> int:
    """Return the first set bit of `count` tests from `at` on, as W_WAIT says; 0 if there is none."""
    end = at + 2 * count
    while at < end:
        word = M[warp + W_VIEW + (P[at] & (1 << TEST_BASE_BITS) - 1)] + (P[at] >> TEST_BASE_BITS)
        found = M[word] & P[at + 1]
        if found != 0:
            return int(word << WORD_BITS | ctz(found))
        at += 2
    return 0


def empty_accumulator(M: State, P: Program, warp: int, at: int, count: int, t: int) -> int:
    """Do the same for accumulators, of which those are not tested that the weft's matrix instructions will write."""
    if M[warp + W_OP_HEAD] == M[warp + W_OP_TAIL]:
        return find_set(M, P, warp, at, count)
    for test in range(at, at + 2 * count, 2):
        number, base = P[test] >> TEST_BASE_BITS, P[test] & (1 << TEST_BASE_BITS) - 1
        word = M[warp + W_VIEW + base] + number
        found = M[word] & P[test + 1]
        if found != 0 and base == TEST_OWN:
            found = not_accumulated(M, warp, number, found, t)
        if found != 0:
            return int(word << WORD_BITS | ctz(found))
    return 0


def find_empty(M: State, P: Program, warp: int, fiber: int, t: int) -> int:
    """Return a source register that is empty for the warp in cycle t, as W_WAIT says; 0 if there is none."""
    tests = P[fiber + Y_TESTS]
    sources, accumulators = tests & 255, (tests >> TESTS_BITS) & 255
    found = find_set(M, P, warp, fiber + Y_TEST, sources)
    if found != 0 or accumulators == 0:
        return found
    return empty_accumulator(M, P, warp, fiber + Y_TEST + 2 * sources, accumulators, t)


def find_full(M: State, P: Program, warp: int, fiber: int) -> int:
    """Return a register of the destination that is full, as W_WAIT says; 0 if there is none."""
    tests = P[fiber + Y_TESTS]
    before = (tests & 255) + ((tests >> TESTS_BITS) & 255)
    return find_set(M, P, warp, fiber + Y_TEST + 2 * before, tests >> 2 * TESTS_BITS)


def watch(M: State, P: Program, sub: int, warp: int, fiber: int, t: int) -> int:
    """Let a warp be looked at when a bit that it tests is set; return the cycle from which it tests more."""
    M[sub + Q_SENSITIVE] |= bit(M[warp + W_BIT])
    M[warp + W_TOUCHED] = P[fiber + Y_TOUCHED]
    soon = INF
    if P[fiber + Y_ACCUMULATOR] != 0:
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


def look_again(M: State, sub: int, t: int) -> None:
    """Let those candidates be looked at in cycle t that were held up to this cycle, or have been roused."""
    rest = held = M[sub + Q_HELD]
    soon = INF
    while rest != 0:
        i = ctz(rest)
        rest = drop_lowest(rest)
        sure = M[M[sub + Q_WARPS] + i * W_WORDS + W_SURE]
        if sure <= t:
            held &= ~bit(i)
        else:
            soon = min(soon, sure)
    M[sub + Q_HELD], M[sub + Q_HELD_NEXT] = held, soon
    M[sub + Q_BIT_WAIT] &= held
    M[sub + Q_SENSITIVE] &= held


def is_ready(M: State, P: Program, sub: int, warp: int, t: int) -> bool:
    """Tell whether conditions d' to g hold for a candidate in cycle t; account the cycle, and hold it up, if not."""
    row = M[warp + W_ROW]
    flags = P[row + P_FLAGS]
    if flags & FLAGS_BY_OR_QUEUE and is_off(M, P, warp, row):
        return True
    own = bit(M[warp + W_BIT])
    if flags & FLAG_BITS and M[sub + Q_PASSED] & own == 0:
        fiber = fiber_row(M, row)
        wait = find_empty(M, P, warp, fiber, t)
        if wait != 0:
            wait_empty(M, P, sub, warp, wait, t)
            return False
        wait = find_full(M, P, warp, fiber) if flags & FLAG_FULL else 0
        if wait != 0:
            wait_full(M, P, sub, warp, wait, fiber, t)
            return False
        if P[fiber + Y_ACCUMULATOR] == 0:
            M[sub + Q_PASSED] |= own
    queue = place_until(M, P, sub, warp, row) if flags & FLAGS_BY_OR_QUEUE else 0
    pipe = pipe_until(M, P, sub, row)
    until = max(pipe, queue)
    if P[row + P_PORTS] != 0:
        until = max(until, ports_until(M, P, sub, warp, row))
    if until <= t:
        return True
    reason = blocked_by(P, P[row + P_COLD], queue, pipe, t)
    held(M, P, sub, warp, reason, sure_until(M, P, sub, warp, row, queue, pipe, t), t)
    return False


@cold
def wait_empty(M: State, P: Program, sub: int, warp: int, wait: int, t: int) -> None:
    """Let a candidate wait until a register that it reads is full."""
    wait_for(M, sub, warp, wait)
    held(M, P, sub, warp, POOL_EMPTY, clear_due(M, sub, wait), t)


@cold
def wait_full(M: State, P: Program, sub: int, warp: int, wait: int, fiber: int, t: int) -> None:
    """Let a candidate wait until a register that it writes is empty; meanwhile one that it reads may become so."""
    wait_for(M, sub, warp, wait)
    held(M, P, sub, warp, POOL_FULL, watch(M, P, sub, warp, fiber, t), t)


def wait_for(M: State, sub: int, warp: int, wait: int) -> None:
    """Let a candidate be looked at when a bit is cleared."""
    M[sub + Q_BIT_WAIT] |= bit(M[warp + W_BIT])
    M[warp + W_WAIT] = wait


def sure_until(M: State, P: Program, sub: int, warp: int, row: int, queue: int, pipe: int, t: int) -> int:
    """Return up to which cycle a candidate has the reason that it has in cycle t, as bits stand.

    Nobody enters a queue while it is full, or a pipe while it is busy. Ports, and a pipe behind a queue, are looked at
    in every cycle, because the queue or the pipe may be taken meanwhile.
    """
    until = queue
    if queue <= t:
        if pipe <= t or queue_of(P, row) != QUEUE_NONE:
            return t + 1
        until = pipe
    if P[row + P_FLAGS] & FLAG_BITS == 0:
        return until
    return min(until, watch(M, P, sub, warp, fiber_row(M, row), t))


def held(M: State, P: Program, sub: int, warp: int, reason: int, until: int, t: int) -> None:
    """Account cycle t, in which a candidate is held up, and let it not be looked at before cycle `until`."""
    own = bit(M[warp + W_BIT])
    if until > t + 1 or (M[sub + Q_BIT_WAIT] | M[sub + Q_SENSITIVE]) & own != 0:
        M[sub + Q_HELD] |= own
        M[sub + Q_HELD_NEXT] = min(M[sub + Q_HELD_NEXT], until)
    if M[sub + Q_BLOCKED] & own == 0:
        M[sub + Q_BLOCKED] |= own
        credit(M, P, warp, NOT_SELECTED, t)
    elif M[warp + W_DONE] < t:
        credit_blocked(M, P, sub, warp, t)
    M[warp + W_SURE] = until
    M[warp + W_HELD] = reason
    credit(M, P, warp, reason, t + 1)
