"""Asynchronous matrix instructions: warp-group collectives (wgmma), tcgen05, tensor memory.

HMMA is an ordinary instruction of a pipe; this file has the matrix unit that works for a whole SM.
"""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.barriers import arrive
from heddle.sim.core.conditions import GMMA
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    COLLECTIVES,
    G_END,
    G_FORMED,
    G_READ,
    G_SIGNALS,
    G_START,
    G_WARPS,
    H_BITS,
    H_LOG,
    H_READ,
    H_REMOTE,
    H_SHARE,
    H_SLACK,
    H_SWITCH,
    H_TAIL,
    H_WRITTEN,
    INTERVALS,
    LOG_COMPLETE,
    LOG_TENSOR,
    P_COLD,
    Q_HELD_NEXT,
    Q_TMEM_FREE,
    QUEUE_SLOTS,
    S_ACTIVE,
    S_ACTIVE_HEAD,
    S_ACTIVE_TAIL,
    S_BACKLOG,
    S_MATRIX_BUSY,
    S_MATRIX_FREE,
    S_MATRIX_OWNER,
    S_RANK,
    S_SHARED_BYTES,
    S_TCGEN05,
    S_TCGEN05_COUNT,
    S_WORDS,
    ST_CANDIDATE,
    ST_GMMA,
    ST_PENDING,
    TICK_BITS,
    W_ASK,
    W_AT_REST,
    W_CAUSE,
    W_GROUP,
    W_MMA_COUNT,
    W_MMA_COUNTERS,
    W_PENDING,
    W_PHASE,
    W_PHASE_REASON,
    W_SIGNALS,
    W_SM,
    W_STATE,
    W_SUB,
    W_SURE,
    W_TCGEN05_DONE,
    X_BYTES,
    X_CAUSE,
    X_CTAS,
    X_DURATION,
    X_EXTRA,
    X_READ,
    X_SHARED,
    X_WRITE,
)
from heddle.sim.core.log import record
from heddle.sim.core.matrix_ops import end_collective
from heddle.sim.core.rows import unit_of
from heddle.sim.core.shared import add_backlog, set_counter
from heddle.sim.core.wake import schedule, sleep, visit

TMEM_LOAD = int(Unit.TMEM_LOAD)


def start_matrix(M: State, sm: int, t: int) -> int:
    """Return when the SM's matrix unit can start on work that is complete in cycle t, in ticks."""
    start = max((t + 1) << TICK_BITS, M[sm + S_MATRIX_FREE])
    return int(max(start, M[sm + S_BACKLOG] - M[H_SLACK]))


def occupy_matrix(M: State, P: Program, sm: int, cold: int, start: int) -> int:
    """Let the matrix unit work from tick `start`, and return when it has read its operands."""
    end = start + P[cold + X_DURATION]
    M[sm + S_MATRIX_FREE] = end
    M[sm + S_MATRIX_BUSY] += P[cold + X_DURATION]
    add_backlog(M, sm, start, P[cold + X_SHARED])
    M[sm + S_SHARED_BYTES] += P[cold + X_BYTES]
    return int(end)


def mark_active(M: State, sm: int, begin: int, end: int, t: int) -> None:
    """Remember in cycle t that the matrix unit works on register accumulators in the cycles begin..end-1."""
    accumulators_active(M, sm, t)  # forgets what is past
    tail = M[sm + S_ACTIVE_TAIL]
    at = sm + S_ACTIVE + 2 * (tail & (INTERVALS - 1))
    M[at] = begin
    M[at + 1] = end
    M[sm + S_ACTIVE_TAIL] = tail + 1


def accumulators_active(M: State, sm: int, t: int) -> bool:
    """Tell whether the matrix unit works on register accumulators in cycle t; t never decreases."""
    head = M[sm + S_ACTIVE_HEAD]
    while head < M[sm + S_ACTIVE_TAIL]:
        at = sm + S_ACTIVE + 2 * (head & (INTERVALS - 1))
        if M[at + 1] > t:
            M[sm + S_ACTIVE_HEAD] = head
            return bool(M[at] <= t)
        head += 1
    M[sm + S_ACTIVE_HEAD] = head
    return False


def settle_counter(M: State, warp: int, counter: int, at_rest: int) -> None:
    """An operation that was pending on a counter now has an end."""
    if counter >= 0:
        M[warp + W_PENDING + counter] -= 1
        M[warp + W_AT_REST + counter] = max(M[warp + W_AT_REST + counter], at_rest)


def form_collective(M: State, P: Program, L: State, warp: int, row: int, n: int, t: int) -> None:
    """All four warps have issued their n-th warp-group instruction: it gets its place on the matrix unit."""
    cold = P[row + P_COLD]
    sm, group = M[warp + W_SM], M[warp + W_GROUP]
    start = start_matrix(M, sm, t)
    if M[sm + S_MATRIX_OWNER] != 0 and M[sm + S_MATRIX_OWNER] != group:
        start += M[H_SWITCH]
    M[sm + S_MATRIX_OWNER] = group
    end = occupy_matrix(M, P, sm, cold, start)
    complete = (end + M[H_TAIL]) >> TICK_BITS
    begin, read = start >> TICK_BITS, end >> TICK_BITS
    place = n & (COLLECTIVES - 1)
    M[group + G_START + place] = begin
    M[group + G_END + place] = complete
    M[group + G_FORMED] = n + 1
    M[group + G_READ] = read
    if M[H_SHARE] != 0 and read > begin:
        mark_active(M, sm, begin, read, t)
    for i in range(4):
        other = M[group + G_WARPS + i]
        counters = M[other + W_MMA_COUNTERS + (n & (QUEUE_SLOTS - 1))]
        settle_counter(M, other, (counters & 15) - 1, complete)
        settle_counter(M, other, (counters >> 4) - 1, read)
        if M[H_BITS] != 0:
            end_collective(M, P, other, n, read, complete, t)
        if other != warp:
            if M[other + W_STATE] == ST_PENDING:
                schedule(M, P, other, t)
            elif M[other + W_STATE] == ST_GMMA:
                resume_wgmma_wait(M, other, n, complete, t)
            elif M[other + W_STATE] == ST_CANDIDATE:
                sub = M[other + W_SUB]
                M[other + W_SURE] = min(M[other + W_SURE], t + 1)
                M[sub + Q_HELD_NEXT] = min(M[sub + Q_HELD_NEXT], t + 1)  # mode fiber: there it may be held up
                visit(M, sub, t + 1)
    if M[H_LOG] == 2:
        first = M[group + G_WARPS]
        record(M, P, L, first, row, LOG_TENSOR, begin, read, 0)
        record(M, P, L, first, row, LOG_COMPLETE, complete, complete, 0)


def resume_wgmma_wait(M: State, warp: int, n: int, complete: int, t: int) -> None:
    """A warp that waits for a collective that had not formed: if it is this one, its end is known now."""
    if M[warp + W_ASK] == n + 1:
        M[warp + W_PHASE] = 1
        M[warp + W_PHASE_REASON] = GMMA
        sleep(M, warp, complete, t)


def issue_wgmma(M: State, P: Program, L: State, warp: int, row: int, t: int) -> None:
    """HGMMA, QGMMA: the collective forms when the fourth warp of the group has issued its n-th."""
    n = M[warp + W_MMA_COUNT]
    M[warp + W_MMA_COUNT] = n + 1
    cold = P[row + P_COLD]
    write, read = P[cold + X_WRITE], P[cold + X_READ]
    M[warp + W_MMA_COUNTERS + (n & (QUEUE_SLOTS - 1))] = (write + 1) | (read + 1) << 4
    cause = P[cold + X_CAUSE]
    if write >= 0:
        M[warp + W_PENDING + write] += 1
        M[warp + W_CAUSE + write] = cause
    if read >= 0:
        M[warp + W_PENDING + read] += 1
        M[warp + W_CAUSE + read] = cause
    group = M[warp + W_GROUP]
    for i in range(4):
        if M[M[group + G_WARPS + i] + W_MMA_COUNT] <= n:
            return
    form_collective(M, P, L, warp, row, n, t)


def signal_reads(M: State, P: Program, warp: int, cold: int, t: int) -> None:
    """WARPGROUP.SIGNAL: one arrival when the fourth warp has issued it and its group's operands have been read."""
    n = M[warp + W_SIGNALS]
    M[warp + W_SIGNALS] = n + 1
    group = M[warp + W_GROUP]
    for i in range(4):
        if M[M[group + G_WARPS + i] + W_SIGNALS] <= n:
            return
    M[group + G_SIGNALS] = n + 1
    arrive(M, P, warp, cold, max(t, M[group + G_READ]) + P[cold + X_EXTRA], M[H_REMOTE])


def issue_tcgen05(M: State, P: Program, L: State, warp: int, row: int, t: int) -> None:
    """UTCHMMA, UTCQMMA: on the SM's matrix unit, or on those of both SMs of a pair."""
    cold = P[row + P_COLD]
    own = M[warp + W_SM]
    first, other = own, own
    if P[cold + X_CTAS] == 2:
        first = own - (M[own + S_RANK] & 1) * S_WORDS
        other = first + S_WORDS
    start = max(start_matrix(M, first, t), start_matrix(M, other, t))
    end = occupy_matrix(M, P, first, cold, start)
    if other != first:
        end = occupy_matrix(M, P, other, cold, start)
    M[own + S_TCGEN05 + (M[own + S_TCGEN05_COUNT] & (QUEUE_SLOTS - 1))] = start
    M[own + S_TCGEN05_COUNT] += 1
    complete = (end + P[cold + X_EXTRA]) >> TICK_BITS
    M[warp + W_TCGEN05_DONE] = max(M[warp + W_TCGEN05_DONE], complete)
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], complete)
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], end >> TICK_BITS)
    M[H_WRITTEN], M[H_READ] = complete, end >> TICK_BITS
    if M[H_LOG] == 2:
        record(M, P, L, warp, row, LOG_TENSOR, start >> TICK_BITS, end >> TICK_BITS, 0)
        record(M, P, L, warp, row, LOG_COMPLETE, complete, complete, 0)


def issue_tensor_memory(M: State, P: Program, warp: int, row: int, t: int, own: int) -> None:
    """LDTM, STTM: the tensor-memory port of the subpartition."""
    cold = P[row + P_COLD]
    sub = M[warp + W_SUB]
    end = max(M[sub + Q_TMEM_FREE], t << TICK_BITS) + P[cold + X_DURATION]
    M[sub + Q_TMEM_FREE] = end
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], (end >> TICK_BITS) + P[cold + X_EXTRA])
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], t + own + 2)
    M[H_WRITTEN] = (end >> TICK_BITS) + P[cold + X_EXTRA]
    if unit_of(P, row) == TMEM_LOAD:
        M[H_READ] = max(M[H_READ], end >> TICK_BITS)
