"""What programs of mode fiber add to the state relative to a cycle (`relative`): bits, changes to come, matrix queues.

Matrix operations are named by their weft and their distance from its newest one, so that rings may have turned.
"""

from __future__ import annotations

from heddle.sim.core.heap import State
from heddle.sim.core.layout import (
    C_ARRIVED,
    C_MEETS,
    C_POOL_REST,
    C_POOL_UNKNOWN,
    C_QUADS,
    C_REGISTERS,
    C_REST,
    C_UNKNOWN,
    H_BITS,
    H_DRAINING,
    H_WARPS_PER_CTA,
    INF,
    Q_BIT_WAIT,
    Q_CLEARS,
    Q_CLEARS_USED,
    Q_HELD,
    Q_SENSITIVE,
    S_INDEX,
    S_WHEEL,
    ST_CANDIDATE,
    SUBPARTITIONS,
    TICK_BITS,
    W_CTA,
    W_DENIED,
    W_GROUPED,
    W_HELD,
    W_MMA_COUNT,
    W_OP_HEAD,
    W_OP_TAIL,
    W_OPS,
    W_OWNER,
    W_STATE,
    W_SURE,
    W_VACANT,
    W_WAIT,
    W_WARP,
)
from heddle.sim.core.layout_fiber import (
    D_AT,
    D_MORE,
    D_PART,
    D_SLOT_WORDS,
    G4_FORMED,
    G4_ISSUED,
    G4_OP,
    G4_WORDS,
    H_DELAY,
    H_QUEUE_DEPTH,
    H_QUEUES,
    N_AT,
    N_NEXT,
    N_PART,
    N_WHAT,
    O_COUNT,
    O_DROP,
    O_END,
    O_FIRST,
    O_GROUP,
    O_ISSUED,
    O_NUMBER,
    O_OWNER,
    O_PORTS,
    O_ROW,
    O_START,
    O_WARP,
    O_WORDS,
    OPS,
    QUEUED,
    THREAD_WORDS,
    V_COUNT,
    V_DECIDED,
    V_FREE,
    V_OP,
    V_OWNER,
    V_SPAN,
    V_SPAN_HEAD,
    V_SPAN_TAIL,
    V_START,
    V_WORDS,
    WHEEL,
    Z_CLEAR,
    Z_SET,
)
from heddle.sim.core.matrix_ops import op_at

END = -1  # of a list


def name_of(M: State, op: int) -> int:
    """Return the name of a matrix operation: its weft and how many younger ones that has issued; 0 for none."""
    if op == 0:
        return 0
    warp = M[op + O_WARP]
    return int(warp * OPS + ((M[warp + W_OP_TAIL] - (op - M[warp + W_OPS]) // O_WORDS) & (OPS - 1)))


def relative_wheel(M: State, F: State, at: int, sm: int, t: int) -> int:
    """Write the changes of bits to come, cycle by cycle from t on; those before t have been made."""
    wheel = M[sm + S_WHEEL]
    for k in range(WHEEL):
        for value in range(2):
            change = M[wheel + Z_CLEAR + value * (Z_SET - Z_CLEAR) + ((t + k) & (WHEEL - 1))]
            while change != 0:
                F[at] = k << 1 | value
                F[at + 1], F[at + 2], F[at + 3] = M[change + N_AT], M[change + N_PART], M[change + N_WHAT]
                at += 4
                change = M[change + N_NEXT]
    F[at] = END
    return at + 1


def relative_queue(M: State, F: State, at: int, queue: int, t: int) -> int:
    """Write the matrix queue of a subpartition: what is not decided, recent starts, what accumulators take."""
    now = t << TICK_BITS
    decided, count = M[queue + V_DECIDED], M[queue + V_COUNT]
    F[at] = count - decided
    F[at + 1] = max(M[queue + V_FREE] - now, 0)
    F[at + 2] = M[queue + V_OWNER]
    at += 3
    for n in range(decided, count):
        F[at] = name_of(M, M[queue + V_OP + (n & (QUEUED - 1))])
        at += 1
    for i in range(M[H_QUEUE_DEPTH]):
        n = decided - 1 - i
        F[at] = max(M[queue + V_START + (n & (QUEUED - 1))] - now, 0) if n >= 0 else 0
        at += 1
    for n in range(M[queue + V_SPAN_HEAD], M[queue + V_SPAN_TAIL]):
        span = queue + V_SPAN + 4 * (n & (QUEUED - 1))
        if M[span + 1] > t:
            F[at], F[at + 1] = max(M[span] - t, 0), M[span + 1] - t
            F[at + 2], F[at + 3] = M[span + 2], M[span + 3]
            at += 4
    F[at] = END
    return at + 1


def relative_fiber_sm(M: State, F: State, at: int, sm: int, t: int) -> int:
    """Write what an SM has beside its subpartitions' units."""
    if M[H_BITS] != 0:
        at = relative_wheel(M, F, at, sm, t)
    first = M[H_QUEUES] + M[sm + S_INDEX] * SUBPARTITIONS * V_WORDS
    for k in range(SUBPARTITIONS):
        at = relative_queue(M, F, at, first + k * V_WORDS, t)
    return at


def relative_waits(M: State, F: State, at: int, sub: int, t: int) -> int:
    """Write which candidates of a subpartition are looked at when a bit changes, and its wheel of clears."""
    F[at], F[at + 1], F[at + 2] = M[sub + Q_BIT_WAIT], M[sub + Q_SENSITIVE], M[sub + Q_HELD]
    at += 3
    for k in range(WHEEL if M[sub + Q_CLEARS_USED] != 0 else 0):
        slot = M[sub + Q_CLEARS] + ((t + k) & (WHEEL - 1)) * D_SLOT_WORDS
        if (M[sub + Q_CLEARS_USED] >> ((t + k) & (WHEEL - 1))) & 1:
            F[at], F[at + 1], F[at + 2] = k, M[slot + D_AT], M[slot + D_PART]
            at += 3
            change = M[slot + D_MORE]
            while change != 0:
                F[at], F[at + 1], F[at + 2] = k, M[change + N_AT], M[change + N_PART]
                at += 3
                change = M[change + N_NEXT]
    F[at] = END
    return at + 1


def relative_op(M: State, F: State, at: int, warp: int, op: int, t: int) -> int:
    """Write a matrix operation in flight."""
    now, start = t << TICK_BITS, M[op + O_START]
    F[at] = name_of(M, op)
    F[at + 1], F[at + 2], F[at + 3] = M[op + O_ROW], M[op + O_FIRST], M[op + O_COUNT]
    F[at + 4] = M[op + O_END] - t if M[op + O_END] < INF else INF
    F[at + 5] = 1 if M[op + O_OWNER] == M[warp + W_OWNER] else 0
    F[at + 6] = max(M[op + O_ISSUED] + 1 - t, 0)
    F[at + 7] = M[warp + W_GROUPED] - M[op + O_GROUP] if M[op + O_GROUP] >= 0 else END
    F[at + 8] = M[warp + W_MMA_COUNT] - M[op + O_NUMBER] if M[op + O_NUMBER] >= 0 else END
    F[at + 9] = max(start - now, 0) if start < INF else INF
    for k in range(4):
        F[at + 10 + k] = M[op + O_DROP + k]
        F[at + 14 + k] = M[op + O_PORTS + k] if start >= now else 0
    return at + 18


def relative_weft(M: State, F: State, at: int, warp: int, t: int) -> int:
    """Write what a weft's context has beside a warp's, also if no weft is in it."""
    F[at] = M[warp + W_VACANT]
    sure = M[warp + W_SURE] if M[warp + W_STATE] == ST_CANDIDATE else 0
    F[at + 1] = max(sure - t, 0) if sure < INF else INF
    F[at + 2] = M[warp + W_HELD] if sure > t else 0
    F[at + 3] = M[warp + W_WAIT] if sure > t else 0
    F[at + 4] = M[warp + W_GROUPED] - M[M[M[warp + W_CTA] + C_QUADS] + M[warp + W_WARP] // 4 * G4_WORDS + G4_FORMED]
    F[at + 5] = max(M[warp + W_DENIED] - t, 0)
    at += 6
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        op = op_at(M, warp, n)
        if M[op + O_END] >= t:
            at = relative_op(M, F, at, warp, op, t)
    F[at] = END
    return at + 1


def relative_quad(M: State, F: State, at: int, quad: int) -> int:
    """Write the group instructions of four wefts that are not decided."""
    for k in range(QUEUED):
        place = (M[quad + G4_FORMED] + k) & (QUEUED - 1)
        if M[quad + G4_ISSUED + place] != 0:
            F[at], F[at + 1] = k, M[quad + G4_ISSUED + place]
            for i in range(4):
                F[at + 2 + i] = name_of(M, M[quad + G4_OP + 4 * place + i])
            at += 6
    F[at] = END
    return at + 1


def relative_thread(M: State, F: State, at: int, cta: int, t: int) -> int:
    """Write a FIBER-thread: its meeting, what it waits for at its end, its bits, its groups of four."""
    F[at], F[at + 1] = M[cta + C_ARRIVED], M[cta + C_MEETS]
    F[at + 2] = max(M[cta + C_REST] + M[H_DELAY] - t, 0)
    F[at + 3] = M[cta + C_UNKNOWN]
    F[at + 4] = max(M[cta + C_POOL_REST] - t, 0)
    F[at + 5] = M[cta + C_POOL_UNKNOWN]
    F[at + 6] = M[H_DRAINING]
    at += 7
    for k in range(THREAD_WORDS):
        F[at + k] = M[M[cta + C_REGISTERS] + k]
    at += THREAD_WORDS
    for i in range((M[H_WARPS_PER_CTA] + 3) // 4):
        at = relative_quad(M, F, at, M[cta + C_QUADS] + i * G4_WORDS)
    return at
