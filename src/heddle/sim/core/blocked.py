"""Conditions e to g, which are tested anew in every cycle: a place in the unit's queue, a free pipe, free read ports.

All three are "not before cycle x" as things stand, and change only when something issues; so a candidate's cycles
between two issues are accounted at once.
"""

from __future__ import annotations

from heddle.sim.core.accounting import credit
from heddle.sim.core.bits import bit, ctz, drop_lowest
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    COLLECTIVES,
    FLAGS_BY_OR_QUEUE,
    G_FORMED,
    G_START,
    H_FIBER,
    H_LSU_DEPTH,
    H_TCGEN05_DEPTH,
    H_WGMMA_DEPTH,
    INF,
    P_COLD,
    P_FLAGS,
    P_OWN,
    P_PIPE,
    P_PORTS,
    P_WORDS,
    Q_BLOCKED,
    Q_INDEX,
    Q_LAST,
    Q_LAST_ROW,
    Q_LSU,
    Q_LSU_COUNT,
    Q_PORT,
    Q_SM,
    Q_WARPS,
    Q_WORDS,
    QUEUE_LSU,
    QUEUE_NONE,
    QUEUE_SLOTS,
    QUEUE_TCGEN05,
    QUEUE_TMA,
    S_PIPE,
    S_QUARTERS,
    S_TCGEN05,
    S_TCGEN05_COUNT,
    S_TMA,
    S_TMA_COUNT,
    SUBPARTITIONS,
    TICK_BITS,
    W_BIT,
    W_DONE,
    W_GROUP,
    W_HELD,
    W_MMA_COUNT,
    W_ROW,
    W_SURE,
    W_WORDS,
    X_PIPE_CAUSE,
    X_PORTS_REUSE,
    X_QUEUE_CAUSE,
)
from heddle.sim.core.rows import is_off, queue_of
from heddle.sim.result import Stall

NOT_SELECTED, DISPATCH_STALL = int(Stall.NOT_SELECTED), int(Stall.DISPATCH_STALL)


def reuses(M: State, P: Program, sub: int, warp: int, row: int) -> bool:
    """Tell whether the reuse cache holds what this instruction's predecessor left."""
    if P[row + P_OWN] >> 16 == 0:
        return False
    return bool(M[sub + Q_LAST] == M[warp + W_BIT] and M[sub + Q_LAST_ROW] == row - P_WORDS)


def queue_until(M: State, P: Program, sub: int, warp: int, row: int) -> int:
    """Condition e: return the cycle from which there is a place in the unit's queue, INF if not known yet."""
    queue = queue_of(P, row)
    sm = M[sub + Q_SM]
    if queue == QUEUE_LSU:
        before = M[sub + Q_LSU_COUNT] - M[H_LSU_DEPTH]
        return int(M[sub + Q_LSU + (before & (QUEUE_SLOTS - 1))] >> TICK_BITS) if before >= 0 else 0
    if queue == QUEUE_TMA:
        before = M[sm + S_TMA_COUNT] - QUEUE_SLOTS
        return int(M[sm + S_TMA + (before & (QUEUE_SLOTS - 1))] >> TICK_BITS) if before >= 0 else 0
    if queue == QUEUE_TCGEN05:
        before = M[sm + S_TCGEN05_COUNT] - M[H_TCGEN05_DEPTH]
        return int(M[sm + S_TCGEN05 + (before & (QUEUE_SLOTS - 1))] >> TICK_BITS) if before >= 0 else 0
    before = M[warp + W_MMA_COUNT] - M[H_WGMMA_DEPTH]
    group = M[warp + W_GROUP]
    if before < 0:
        return 0
    if before >= M[group + G_FORMED]:
        return INF
    return int(M[group + G_START + (before & (COLLECTIVES - 1))])


def pipe_until(M: State, P: Program, sub: int, row: int) -> int:
    """Condition f: return the cycle from which the pipe is free."""
    pipe = P[row + P_PIPE]
    pipe += sub if pipe < S_PIPE else M[sub + Q_SM]
    return int(M[pipe] >> TICK_BITS)


def ports_until(M: State, P: Program, sub: int, warp: int, row: int) -> int:
    """Condition g: return the cycle from which each bank that the instruction reads is free in the next cycle."""
    ports = P[row + P_PORTS]
    if reuses(M, P, sub, warp, row):
        ports = P[P[row + P_COLD] + X_PORTS_REUSE]
    until = M[sub + Q_PORT] if ports & 255 else 0
    if ports & (255 << 8):
        until = max(until, M[sub + Q_PORT + 1])
    if ports >> 16 != 0:
        if ports & (255 << 16):
            until = max(until, M[sub + Q_PORT + 2])
        if ports >> 24 != 0:
            until = max(until, M[sub + Q_PORT + 3])
    return int(until >> TICK_BITS) - 1


def candidate_until(M: State, P: Program, sub: int, warp: int, t: int) -> int:
    """Return the cycle from which conditions e to g hold, as things stand; account cycle t if that is later than t."""
    if M[warp + W_SURE] > t:
        return int(M[warp + W_SURE])
    row = M[warp + W_ROW]
    queue = 0
    queued = P[row + P_FLAGS] & FLAGS_BY_OR_QUEUE
    if queued != 0:
        if is_off(M, P, warp, row):
            return 0
        if queue_of(P, row) != QUEUE_NONE:
            queue = queue_until(M, P, sub, warp, row)
    pipe = pipe_until(M, P, sub, row)
    until = max(pipe, queue)
    if P[row + P_PORTS] != 0:
        until = max(until, ports_until(M, P, sub, warp, row))
    if until <= t:
        return int(until)
    own = bit(M[warp + W_BIT])
    if M[sub + Q_BLOCKED] & own == 0:
        M[sub + Q_BLOCKED] |= own
        credit(M, P, warp, NOT_SELECTED, t)
    elif M[warp + W_DONE] < t:
        credit_blocked(M, P, sub, warp, t)
    if pipe > t and queued == 0:
        M[warp + W_SURE] = pipe
        return int(pipe)
    credit(M, P, warp, blocked_by(P, P[row + P_COLD], queue, pipe, t), t + 1)
    return int(until)


def blocked_by(P: Program, cold: int, queue: int, pipe: int, t: int) -> int:
    """Return what holds a candidate up in cycle t: its queue, its pipe, or else the read ports."""
    if queue > t:
        return int(P[cold + X_QUEUE_CAUSE])
    return int(P[cold + X_PIPE_CAUSE]) if pipe > t else DISPATCH_STALL


def credit_blocked(M: State, P: Program, sub: int, warp: int, until: int) -> None:
    """Account a candidate's cycles up to `until` to what held it up, as things have stood since `W_DONE`."""
    if until <= M[warp + W_DONE]:
        return
    row = M[warp + W_ROW]
    cold = P[row + P_COLD]
    if until <= M[warp + W_SURE]:
        credit(M, P, warp, M[warp + W_HELD] if M[H_FIBER] != 0 else P[cold + X_PIPE_CAUSE], until)
        return
    if queue_of(P, row) != QUEUE_NONE:
        credit(M, P, warp, P[cold + X_QUEUE_CAUSE], min(until, queue_until(M, P, sub, warp, row)))
    credit(M, P, warp, P[cold + X_PIPE_CAUSE], min(until, pipe_until(M, P, sub, row)))
    credit(M, P, warp, DISPATCH_STALL, min(until, ports_until(M, P, sub, warp, row)))
    credit(M, P, warp, NOT_SELECTED, until)


def settle_others(M: State, P: Program, sub: int, t: int) -> None:
    """Account the blocked candidates of the SM's other subpartitions before a unit of the whole SM changes in cycle t.

    Those that come before `sub` in this cycle's rotation saw the old state in cycle t, the others only before it.
    """
    sm = M[sub + Q_SM]
    place = (M[sub + Q_INDEX] - t) & (SUBPARTITIONS - 1)
    for i in range(SUBPARTITIONS):
        other = sm + S_QUARTERS + i * Q_WORDS
        blocked = M[other + Q_BLOCKED]
        if other != sub and blocked != 0:
            until = t + 1 if (i - t) & (SUBPARTITIONS - 1) < place else t
            while blocked != 0:
                warp = M[other + Q_WARPS] + ctz(blocked) * W_WORDS
                blocked = drop_lowest(blocked)
                credit_blocked(M, P, other, warp, until)
