"""The event log: records of L_WORDS words in the buffer `L` (docs/reference/engine.md, section 7)."""

from __future__ import annotations

from heddle.sim.core.bits import cold
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    B_CTA,
    B_ELEMENT,
    B_INDEX,
    C_CLUSTER,
    C_SM,
    H_LOG_COUNT,
    H_LOG_SMS,
    K_SLOT,
    L_BEGIN,
    L_COUNTERS,
    L_DETAIL,
    L_END,
    L_ITEM,
    L_KIND,
    L_PC,
    L_SLOT,
    L_SM,
    L_STAGE,
    L_WARP,
    L_WORDS,
    LEVELS,
    LOG_BARRIER,
    LOG_ISSUE,
    LOG_WAIT,
    P_COLD,
    S_INDEX,
    W_COUNTER,
    W_ITEM_INDEX,
    W_RUN,
    W_RUNS,
    W_SLOT,
    W_SM,
    W_STAGE,
    W_WARP,
    X_PC,
    X_STAGE_RING,
)
from heddle.sim.result import Stall

NOT_SELECTED, WAIT = int(Stall.NOT_SELECTED), int(Stall.WAIT)


@cold
def record(M: State, P: Program, L: State, warp: int, row: int, kind: int, begin: int, end: int, detail: int) -> None:
    """Write one record about an instruction of a warp, if its SM is logged."""
    sm = M[M[warp + W_SM] + S_INDEX]
    if sm >= M[H_LOG_SMS]:
        return
    at = M[H_LOG_COUNT] * L_WORDS
    M[H_LOG_COUNT] += 1
    cold = P[row + P_COLD]
    L[at + L_KIND] = kind
    L[at + L_SM] = sm
    L[at + L_SLOT] = M[warp + W_SLOT]
    L[at + L_WARP] = M[warp + W_WARP]
    L[at + L_PC] = P[cold + X_PC]
    L[at + L_ITEM] = M[warp + W_ITEM_INDEX]
    L[at + L_BEGIN] = begin
    L[at + L_END] = end
    L[at + L_DETAIL] = detail
    ring = P[cold + X_STAGE_RING]
    L[at + L_STAGE] = M[warp + W_STAGE + ring] if ring >= 0 else 0
    for level in range(LEVELS):
        L[at + L_COUNTERS + level] = M[warp + W_COUNTER + level] if kind == LOG_ISSUE else 0


@cold
def record_phase(M: State, L: State, barrier: int, t: int) -> None:
    """Write that an mbarrier completed a phase."""
    cta = M[barrier + B_CTA]
    sm = M[M[cta + C_SM] + S_INDEX]
    if sm >= M[H_LOG_SMS]:
        return
    at = M[H_LOG_COUNT] * L_WORDS
    M[H_LOG_COUNT] += 1
    for k in range(L_WORDS):
        L[at + k] = 0
    L[at + L_KIND] = LOG_BARRIER
    L[at + L_SM] = sm
    L[at + L_SLOT] = M[M[cta + C_CLUSTER] + K_SLOT]
    L[at + L_WARP] = -1
    L[at + L_PC] = -1
    L[at + L_BEGIN] = t
    L[at + L_END] = t
    L[at + L_DETAIL] = M[barrier + B_INDEX]
    L[at + L_STAGE] = M[barrier + B_ELEMENT]


@cold
def record_waits(M: State, P: Program, L: State, warp: int, row: int, t: int) -> None:
    """Write what held the warp up before its issue in cycle t, but for stall counts and other warps' turns."""
    runs = M[warp + W_RUNS]
    M[warp + W_RUNS] = 0
    for i in range(runs):
        run = warp + W_RUN + 2 * i
        end = M[run + 3] if i + 1 < runs else t
        if M[run] != NOT_SELECTED and M[run] != WAIT:
            record(M, P, L, warp, row, LOG_WAIT, M[run + 1], end, M[run])
