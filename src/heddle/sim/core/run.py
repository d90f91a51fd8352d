"""The event loop over all simulated SMs."""

from __future__ import annotations

from heddle.sim.core.bit_wheel import happen_bit
from heddle.sim.core.clears import happen_clear
from heddle.sim.core.conditions import grow_semaphore, release_waiters
from heddle.sim.core.control import launch_next
from heddle.sim.core.fast_forward import look
from heddle.sim.core.fiber_sync import meet_all
from heddle.sim.core.heap import Program, State, drop_first, next_event
from heddle.sim.core.ideal_step import step_ideal
from heddle.sim.core.layout import (
    B_ARRIVED,
    B_BYTES,
    B_COUNT,
    B_PARITY,
    C_MEETS,
    E_KIND,
    E_ROW,
    E_SM,
    E_WHERE,
    EV_ARRIVE,
    EV_BIT,
    EV_BYTES,
    EV_CLEAR,
    EV_COPY,
    EV_LAND,
    EV_LAUNCH,
    EV_LOST,
    EV_MEET,
    EV_SEMAPHORE,
    EV_WRITE_BACK,
    H_ANCHOR_HIT,
    H_BITS,
    H_DRAINING,
    H_ERROR,
    H_FULL_LOG,
    H_HEAP,
    H_HEAP_COUNT,
    H_LIVE,
    H_LOG,
    H_LOG_CAPACITY,
    H_LOG_COUNT,
    H_MEETING,
    H_NEXT,
    H_SCHEDULE,
    H_SM,
    H_SMS,
    H_TIME,
    INF,
    P_COLD,
    S_WORDS,
    SCHEDULE_LAUNCH,
    TICK_BITS,
    X_BYTES,
    X_SHARED,
)
from heddle.sim.core.layout_ideal import H_IDEAL
from heddle.sim.core.log import record_phase
from heddle.sim.core.matrix_ops import write_back
from heddle.sim.core.shared import add_backlog
from heddle.sim.core.step import step_sm
from heddle.sim.core.thread_end import clear_threads, end_drained
from heddle.sim.core.weft_operands import fetch_operands

DONE, PAUSED, DEADLOCK, LOG_FULL, BROKEN = 0, 1, 2, 3, 4


def arrive_bytes(M: State, P: Program, L: State, barrier: int, row: int, t: int) -> None:
    """Bytes of a bulk copy count at an mbarrier."""
    M[barrier + B_BYTES] -= P[P[row + P_COLD] + X_BYTES]
    complete_phase(M, P, L, barrier, t)


def complete_phase(M: State, P: Program, L: State, barrier: int, t: int) -> None:
    """Complete the phase of an mbarrier if all arrivals and bytes are there."""
    if M[barrier + B_ARRIVED] < M[barrier + B_COUNT] or M[barrier + B_BYTES] != 0:
        return
    M[barrier + B_ARRIVED] = 0
    M[barrier + B_PARITY] ^= 1
    if M[H_LOG] == 2:
        record_phase(M, L, barrier, t)
    release_waiters(M, P, barrier, t)


def happen(M: State, P: Program, L: State, event: int, t: int) -> None:
    """Let the event at an address take effect."""
    kind, where, row, sm = M[event + E_KIND], M[event + E_WHERE], M[event + E_ROW], M[event + E_SM]
    drop_first(M)
    if kind == EV_ARRIVE:
        M[where + B_ARRIVED] += 1
        complete_phase(M, P, L, where, t)
    elif kind == EV_LAND:
        add_backlog(M, sm, t << TICK_BITS, P[P[row + P_COLD] + X_SHARED])
        arrive_bytes(M, P, L, where, row, t)
    elif kind == EV_BYTES:
        arrive_bytes(M, P, L, where, row, t)
    elif kind == EV_COPY:
        add_backlog(M, sm, t << TICK_BITS, P[P[row + P_COLD] + X_SHARED])
    elif kind == EV_SEMAPHORE:
        grow_semaphore(M, P, where, t)
    elif kind == EV_LAUNCH:
        if M[H_BITS] != 0:
            clear_threads(M, where, t)
        if M[H_SCHEDULE] == SCHEDULE_LAUNCH:
            launch_next(M, P, where, t)
    elif kind > EV_LOST:
        happen_to_wefts(M, P, kind, where, row, sm, t)


def happen_to_wefts(M: State, P: Program, kind: int, where: int, change: int, sm: int, t: int) -> None:
    """Let an event of a program with SETFIBERs or bits take effect."""
    if kind == EV_MEET:
        M[where + C_MEETS], M[H_MEETING] = 2, 1
    elif kind == EV_BIT:
        happen_bit(M, where, change, sm, t)
    elif kind == EV_WRITE_BACK:
        write_back(M, P, where, t)
    elif kind == EV_CLEAR:
        happen_clear(M, where, change, sm, t)
    else:
        fetch_operands(M, where)


def begin_cycle(M: State, P: Program, L: State, t: int) -> None:
    """Let all that takes effect in cycle t do so."""
    while next_event(M) <= t:
        happen(M, P, L, M[H_HEAP], t)
    if M[H_MEETING] != 0:
        M[H_MEETING] = 0
        meet_all(M, P, L, t)


def next_cycle(M: State) -> int:
    """Return the next cycle in which anything can happen, INF if nothing ever will."""
    t = next_event(M)
    first = M[H_NEXT]
    for i in range(M[H_SMS]):
        t = min(t, M[first + i])
    return int(t)


def step(M: State, P: Program, L: State, X: State, i: int, t: int) -> None:
    """Simulate cycle t of the i-th SM, if something can happen there."""
    if M[H_IDEAL] != 0:
        M[M[H_NEXT] + i] = step_ideal(M, P, L, X, M[H_SM] + i * S_WORDS, t)
    elif M[M[H_NEXT] + i] <= t:
        soon = step_sm(M, P, L, X, M[H_SM] + i * S_WORDS, t)
        M[M[H_NEXT] + i] = soon


def step_alone(M: State, P: Program, L: State, X: State, t: int, until: int) -> int:
    """Simulate the only SM from cycle t on, while nothing else happens; return the last cycle that was simulated."""
    sm, following = M[H_SM], M[H_NEXT]
    if M[following] > t:
        return t
    while True:
        M[following] = step_sm(M, P, L, X, sm, t)
        soon = M[following]
        if soon >= min(until, next_event(M)) or M[H_ERROR] | M[H_ANCHOR_HIT] | M[H_DRAINING] != 0:
            return t
        t = soon
        M[H_TIME] = t


def run(M: State, P: Program, L: State, X: State, F: State, until: int) -> int:
    """Simulate up to cycle `until` (excluded) and say why it stopped: DONE, PAUSED, DEADLOCK, LOG_FULL or BROKEN."""
    while True:
        t = next_cycle(M)
        if t >= INF:
            return DEADLOCK if M[H_LIVE] > 0 else DONE
        if t >= until:
            M[H_TIME] = until
            return PAUSED
        M[H_TIME] = t
        if M[H_LOG] != 0 and M[H_LOG_COUNT] + M[H_FULL_LOG] + M[H_HEAP_COUNT] > M[H_LOG_CAPACITY]:
            return LOG_FULL
        begin_cycle(M, P, L, t)
        if M[H_SMS] == 1 and M[H_LOG] == 0 and M[H_IDEAL] == 0:
            t = step_alone(M, P, L, X, t, until)
        else:
            for i in range(M[H_SMS]):
                step(M, P, L, X, i, t)
        if M[H_DRAINING] != 0:
            end_drained(M, t)
        M[H_TIME] = t + 1
        if M[H_ERROR] != 0:
            return BROKEN
        if M[H_ANCHOR_HIT] != 0:
            M[H_ANCHOR_HIT] = 0
            look(M, P, X, F, until)
