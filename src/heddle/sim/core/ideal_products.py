"""Matrix instructions of single warps in place of warp-group collectives (the oracle fs).

Each subpartition has its quarter of the matrix unit and serves the warps that run on it one after the other; a warp
does not wait for the other three of its group. Operands still come from shared memory, a quarter of their bytes for
each warp.
"""

from __future__ import annotations

from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    G_READ,
    GROUPS,
    H_LOG,
    H_SLACK,
    H_SWITCH,
    H_TAIL,
    H_WRITTEN,
    LOG_COMPLETE,
    LOG_TENSOR,
    P_COLD,
    P_WORDS,
    Q_SM,
    QUEUE_SLOTS,
    S_BACKLOG,
    S_MATRIX_BUSY,
    S_SHARED_BYTES,
    SUBPARTITIONS,
    TICK_BITS,
    W_GROUP,
    W_MMA,
    W_MMA_COUNT,
    W_MMA_COUNTERS,
    W_MMA_GROUPS,
    W_SUB,
    X_BYTES,
    X_CAUSE,
    X_DURATION,
    X_PENDING,
    X_READ,
    X_SHARED,
    X_WRITE,
)
from heddle.sim.core.layout_ideal import (
    H_I_PCS,
    H_IDEAL,
    I_DESTINATIONS,
    I_SOURCES,
    I_WORDS,
    IDEAL_ORDER,
    O_GUARD,
    O_LAST_READ,
    O_READ,
    O_VALUE,
    Q_MATRIX_FREE,
    Q_MATRIX_OPEN,
    Q_MATRIX_SPANS,
    Q_MATRIX_WARP,
    W_IDEAL,
)
from heddle.sim.core.log import record
from heddle.sim.core.shared import add_backlog, set_counter
from heddle.sim.core.tensor import mark_active


def issue_product(M: State, P: Program, L: State, sub: int, warp: int, row: int, t: int) -> None:
    """A warp's own part of a matrix instruction starts once the quarter is free; nobody else has to issue it."""
    cold, sm = P[row + P_COLD], M[sub + Q_SM]
    start = max((t + 1) << TICK_BITS, M[sub + Q_MATRIX_FREE])
    start = max(start, M[sm + S_BACKLOG] - M[H_SLACK])
    if M[sub + Q_MATRIX_WARP] != 0 and M[sub + Q_MATRIX_WARP] != warp:
        start += M[H_SWITCH]
    end = start + P[cold + X_DURATION]
    M[sub + Q_MATRIX_WARP], M[sub + Q_MATRIX_FREE], M[sub + Q_MATRIX_OPEN] = warp, end, 1
    M[warp + W_MMA_COUNTERS + (M[warp + W_MMA_COUNT] & (QUEUE_SLOTS - 1))] = start >> TICK_BITS
    M[warp + W_MMA_COUNT] += 1
    M[sm + S_MATRIX_BUSY] += P[cold + X_DURATION] // SUBPARTITIONS
    M[sm + S_SHARED_BYTES] += P[cold + X_BYTES] // SUBPARTITIONS
    add_backlog(M, sm, start, P[cold + X_SHARED] // SUBPARTITIONS)
    read, complete = end >> TICK_BITS, (end + M[H_TAIL]) >> TICK_BITS
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], complete)
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], read)
    if read > start >> TICK_BITS:
        mark_active(M, M[sub + Q_MATRIX_SPANS], start >> TICK_BITS, read, t)
    M[H_WRITTEN] = complete
    if M[H_LOG] == 2:
        record(M, P, L, warp, row, LOG_TENSOR, start >> TICK_BITS, read, 0)
        record(M, P, L, warp, row, LOG_COMPLETE, complete, complete, 0)
    own = M[warp + W_IDEAL]
    M[own + O_LAST_READ] = read
    if M[H_IDEAL] & IDEAL_ORDER == 0:
        hold_registers(M, P, own, row, read, complete)


def hold_registers(M: State, P: Program, own: int, row: int, read: int, complete: int) -> None:
    """Where a warp issues in order, its registers are guarded one by one in place of the waits."""
    pc = M[H_I_PCS] + row // P_WORDS * I_WORDS
    sources, written = P[pc + I_SOURCES], P[pc + I_DESTINATIONS]
    for k in range(P[sources]):
        at = own + O_READ + P[sources + 1 + k]
        M[at] = max(M[at], read)
    for k in range(P[written]):
        M[own + O_VALUE + P[written + 1 + k]] = complete


def note_group(M: State, P: Program, warp: int, row: int, wait: int) -> None:
    """Close a group of products; or note what a wait names: what follows it is given back when that has been read."""
    own = M[warp + W_IDEAL]
    if wait == 0:
        M[warp + W_MMA + (M[warp + W_MMA_GROUPS] & (GROUPS - 1))] = M[own + O_LAST_READ]
        M[warp + W_MMA_GROUPS] += 1
        if M[M[warp + W_SUB] + Q_MATRIX_WARP] == warp:
            M[M[warp + W_SUB] + Q_MATRIX_OPEN] = 0
        return
    last = M[warp + W_MMA_GROUPS] - P[P[row + P_COLD] + X_PENDING]
    if last > 0:
        M[own + O_GUARD] = max(M[own + O_GUARD], M[warp + W_MMA + ((last - 1) & (GROUPS - 1))])
        group = M[warp + W_GROUP]
        M[group + G_READ] = max(M[group + G_READ], M[own + O_GUARD])
