"""Account all warps up to now: for a result in the middle of a simulation, and before two states are compared."""

from __future__ import annotations

from heddle.sim.core.accounting import credit, credit_own_waits
from heddle.sim.core.barriers import MBARRIER, SEMAPHORE
from heddle.sim.core.blocked import NOT_SELECTED, credit_blocked
from heddle.sim.core.conditions import GMMA
from heddle.sim.core.fiber_sync import FIBER_SYNC
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    H_WARP_COUNT,
    H_WARPS,
    Q_BLOCKED,
    ST_CANDIDATE,
    ST_DEAD,
    ST_GMMA,
    ST_MBARRIER,
    ST_MEET,
    ST_SEMAPHORE,
    ST_TIMED,
    W_BIT,
    W_HELD,
    W_PHASE,
    W_PHASE_REASON,
    W_STATE,
    W_SUB,
    W_WORDS,
)
from heddle.sim.core.layout_ideal import H_IDEAL


def flush_warp(M: State, P: Program, warp: int, t: int) -> None:
    """Account one warp's cycles before cycle t."""
    state = M[warp + W_STATE]
    if state == ST_TIMED and M[warp + W_PHASE] != 0:
        credit(M, P, warp, M[warp + W_PHASE_REASON], t)
    elif state == ST_CANDIDATE:
        sub = M[warp + W_SUB]
        if (M[sub + Q_BLOCKED] >> M[warp + W_BIT]) & 1:
            credit_blocked(M, P, sub, warp, t)
        else:
            credit(M, P, warp, NOT_SELECTED, t)
    elif state == ST_MBARRIER:
        credit(M, P, warp, MBARRIER, t)
    elif state == ST_GMMA:
        credit(M, P, warp, GMMA, t)
    elif state == ST_SEMAPHORE:
        credit(M, P, warp, SEMAPHORE, t)
    elif state == ST_MEET:
        credit(M, P, warp, FIBER_SYNC, t)
    elif state != ST_DEAD:
        credit_own_waits(M, P, warp, t)


def flush_accounts(M: State, P: Program, t: int) -> None:
    """Account all warps' cycles before cycle t."""
    for i in range(M[H_WARP_COUNT]):
        warp = M[H_WARPS] + i * W_WORDS
        if M[H_IDEAL] == 0:
            flush_warp(M, P, warp, t)
        elif M[warp + W_STATE] != ST_DEAD:
            credit(M, P, warp, M[warp + W_HELD], t)
