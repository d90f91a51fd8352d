"""Condition d: what a unit itself waits for before an instruction may issue (phases, groups, semaphores)."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.accounting import credit, credit_own_waits
from heddle.sim.core.barriers import asked_parity, mbarrier_of, semaphore_of
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    A_VALUE,
    A_WAITERS,
    B_PARITY,
    B_WAITERS,
    COLLECTIVES,
    FLAG_CONDITION,
    G_END,
    G_FORMED,
    GROUPS,
    H_SEMAPHORES_WAIT,
    K_CTAS,
    P_COLD,
    P_FLAGS,
    ST_GMMA,
    ST_MBARRIER,
    ST_SEMAPHORE,
    W_ASK,
    W_BULK,
    W_BULK_COUNT,
    W_CLUSTER,
    W_COPY,
    W_COPY_COUNT,
    W_CTA,
    W_GROUP,
    W_LINK,
    W_MMA,
    W_MMA_GROUPS,
    W_PHASE,
    W_PHASE_REASON,
    W_ROW,
    W_STATE,
    X_BARRIER_CTA,
    X_PENDING,
)
from heddle.sim.core.meeting import arrive_at_meeting
from heddle.sim.core.rows import is_off, unit_of
from heddle.sim.core.wake import make_candidate, sleep
from heddle.sim.result import Stall

GROUP_WAIT, BULK_WAIT, WGMMA_WAIT = int(Unit.GROUP_WAIT), int(Unit.BULK_WAIT), int(Unit.WGMMA_WAIT)
MBARRIER_WAIT, SET_FIBER_NUM = int(Unit.MBARRIER_WAIT), int(Unit.SET_FIBER_NUM)
LONG_SCOREBOARD, GMMA = int(Stall.LONG_SCOREBOARD), int(Stall.GMMA)
MBARRIER, SEMAPHORE = int(Stall.MBARRIER), int(Stall.SEMAPHORE)


def wait_until(M: State, warp: int, end: int, reason: int, t: int) -> None:
    """Condition d holds from cycle `end` on."""
    if end <= t:
        make_candidate(M, warp, t)
        return
    M[warp + W_PHASE] = 1
    M[warp + W_PHASE_REASON] = reason
    sleep(M, warp, end, t)


def groups_end(M: State, closed: int, ring: int, pending: int) -> int:
    """Return when all closed groups but the youngest `pending` are complete; `ring` holds running maxima."""
    last = closed - pending
    if last <= 0:
        return 0
    return int(M[ring + ((last - 1) & (GROUPS - 1))])


def test_wgmma(M: State, P: Program, warp: int, t: int) -> None:
    """Wait for the youngest matrix instruction of the youngest group that must be complete."""
    last = M[warp + W_MMA_GROUPS] - P[P[M[warp + W_ROW] + P_COLD] + X_PENDING]
    count = M[warp + W_MMA + ((last - 1) & (GROUPS - 1))] if last > 0 else 0
    group = M[warp + W_GROUP]
    if count == 0 or count <= M[group + G_FORMED] - COLLECTIVES:
        make_candidate(M, warp, t)
    elif count > M[group + G_FORMED]:
        M[warp + W_STATE] = ST_GMMA
        M[warp + W_ASK] = count
    else:
        wait_until(M, warp, M[group + G_END + ((count - 1) & (COLLECTIVES - 1))], GMMA, t)


def test_mbarrier(M: State, P: Program, warp: int, t: int) -> None:
    """Pass if the asked phase is complete, else wait on the barrier's list."""
    cold = P[M[warp + W_ROW] + P_COLD]
    cta = M[warp + W_CTA] if P[cold + X_BARRIER_CTA] == 0 else M[M[warp + W_CLUSTER] + K_CTAS]
    barrier = mbarrier_of(M, P, warp, cold, cta)
    ask = asked_parity(M, P, warp, cold)
    if M[barrier + B_PARITY] != ask:
        make_candidate(M, warp, t)
        return
    M[warp + W_STATE] = ST_MBARRIER
    M[warp + W_ASK] = ask
    M[warp + W_LINK] = M[barrier + B_WAITERS]
    M[barrier + B_WAITERS] = warp


def test_semaphore(M: State, P: Program, warp: int, t: int) -> None:
    """Pass if the semaphore has reached the value, else wait on its list."""
    cold = P[M[warp + W_ROW] + P_COLD]
    semaphore = semaphore_of(M, P, warp, cold)
    if M[H_SEMAPHORES_WAIT] == 0 or M[semaphore + A_VALUE] >= P[cold + X_PENDING]:
        make_candidate(M, warp, t)
        return
    M[warp + W_STATE] = ST_SEMAPHORE
    M[warp + W_ASK] = P[cold + X_PENDING]
    M[warp + W_LINK] = M[semaphore + A_WAITERS]
    M[semaphore + A_WAITERS] = warp


def test_condition(M: State, P: Program, warp: int, t: int) -> None:
    """Test condition d in cycle t, in which a to c hold; the warp becomes a candidate or waits."""
    row = M[warp + W_ROW]
    unit = unit_of(P, row)
    pending = P[P[row + P_COLD] + X_PENDING]
    if unit == MBARRIER_WAIT:
        test_mbarrier(M, P, warp, t)
    elif unit == WGMMA_WAIT:
        test_wgmma(M, P, warp, t)
    elif unit == SET_FIBER_NUM:
        arrive_at_meeting(M, P, warp, t)
    elif unit == GROUP_WAIT:
        wait_until(M, warp, groups_end(M, M[warp + W_COPY_COUNT], warp + W_COPY, pending), LONG_SCOREBOARD, t)
    elif unit == BULK_WAIT:
        wait_until(M, warp, groups_end(M, M[warp + W_BULK_COUNT], warp + W_BULK, pending), LONG_SCOREBOARD, t)
    else:
        test_semaphore(M, P, warp, t)


def wake(M: State, P: Program, warp: int, t: int) -> None:
    """Take a warp out of the wake ring in cycle t."""
    if M[warp + W_PHASE] != 0:
        M[warp + W_PHASE] = 0
        credit(M, P, warp, M[warp + W_PHASE_REASON], t)
        make_candidate(M, warp, t)
        return
    row = M[warp + W_ROW]
    credit_own_waits(M, P, warp, t)
    if P[row + P_FLAGS] & FLAG_CONDITION and not is_off(M, P, warp, row):
        test_condition(M, P, warp, t)
    else:
        make_candidate(M, warp, t)


def release_waiters(M: State, P: Program, barrier: int, t: int) -> None:
    """Let those warps on the barrier's list go on in cycle t whose phase is complete."""
    warp = M[barrier + B_WAITERS]
    M[barrier + B_WAITERS] = 0
    while warp != 0:
        following = M[warp + W_LINK]
        if M[warp + W_ASK] != M[barrier + B_PARITY]:
            M[warp + W_LINK] = 0
            credit(M, P, warp, MBARRIER, t)
            make_candidate(M, warp, t)
        else:
            M[warp + W_LINK] = M[barrier + B_WAITERS]
            M[barrier + B_WAITERS] = warp
        warp = following


def grow_semaphore(M: State, P: Program, semaphore: int, t: int) -> None:
    """Add one to a semaphore in cycle t and let those go on that wait for its value."""
    M[semaphore + A_VALUE] += 1
    warp = M[semaphore + A_WAITERS]
    M[semaphore + A_WAITERS] = 0
    while warp != 0:
        following = M[warp + W_LINK]
        if M[warp + W_ASK] <= M[semaphore + A_VALUE]:
            M[warp + W_LINK] = 0
            credit(M, P, warp, SEMAPHORE, t)
            make_candidate(M, warp, t)
        else:
            M[warp + W_LINK] = M[semaphore + A_WAITERS]
            M[semaphore + A_WAITERS] = warp
        warp = following
