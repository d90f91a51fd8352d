"""The load/store unit: shared-memory accesses, global accesses, cp.async groups; and the memory request of any unit."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    C_READ,
    C_VISIBLE,
    EV_COPY,
    GROUPS,
    H_END,
    H_LOG,
    H_READ,
    H_WRITTEN,
    LOG_COPY,
    LOG_STORE,
    P_COLD,
    Q_LSU,
    Q_LSU_COUNT,
    QUEUE_SLOTS,
    S_BACKLOG,
    S_INDEX,
    S_LSU_FREE,
    S_SHARED_BYTES,
    TICK_BITS,
    W_AT_REST,
    W_CAUSE,
    W_COPY_OPEN,
    W_COUNTER,
    W_CTA,
    W_CTA_RANK,
    W_ITEM,
    W_ITEM_ORDINAL,
    W_RANK,
    W_SM,
    W_SUB,
    X_BASE,
    X_BYTES,
    X_CAUSE,
    X_CTA_PART,
    X_CTA_STEP,
    X_DURATION,
    X_EXTRA,
    X_GROUP_COPY,
    X_KIND,
    X_LATENCY,
    X_LEVEL,
    X_OFFSET,
    X_PART,
    X_PARTS,
    X_RANK_STRIDE,
    X_READ,
    X_STEP,
    X_STREAM,
    X_WRITE,
)
from heddle.sim.core.log import record
from heddle.sim.core.memory import memory_access
from heddle.sim.core.memory_layout import GRAIN_BITS, TAKEN

SHARED = int(Unit.SHARED)


def set_counter(M: State, warp: int, counter: int, cause: int, at_rest: int) -> None:
    """Let a dependence counter be at rest from a cycle on, at the earliest."""
    if counter >= 0:
        M[warp + W_AT_REST + counter] = max(M[warp + W_AT_REST + counter], at_rest)
        M[warp + W_CAUSE + counter] = cause


def block_of(M: State, P: Program, warp: int, cold: int) -> int:
    """Return the block of its stream that an access names."""
    block = M[M[warp + W_ITEM] + P[cold + X_BASE]] + P[cold + X_CTA_STEP] * M[warp + W_CTA_RANK]
    return int(block + step_of(M, P, warp, cold) * P[cold + X_STEP])


def step_of(M: State, P: Program, warp: int, cold: int) -> int:
    """Return the loop iteration that an access belongs to."""
    return int(M[warp + W_COUNTER + P[cold + X_LEVEL]] + P[cold + X_OFFSET])


def part_of(M: State, P: Program, warp: int, cold: int) -> int:
    """Return the part of the block that an access covers."""
    part = P[cold + X_PART] + P[cold + X_RANK_STRIDE] * M[warp + W_RANK]
    return int(part + P[cold + X_CTA_PART] * M[warp + W_CTA_RANK])


def request(M: State, P: Program, X: State, warp: int, cold: int, t: int, leave: int) -> int:
    """Send a request of this warp to memory; it leaves the SM in cycle `leave`. Return the cycle of the answer."""
    answer = memory_access(
        X,
        t,
        leave << TICK_BITS,
        M[M[warp + W_SM] + S_INDEX],
        P[cold + X_KIND],
        P[cold + X_STREAM],
        block_of(M, P, warp, cold),
        part_of(M, P, warp, cold),
        P[cold + X_PARTS],
        P[cold + X_BYTES],
        P[cold + X_EXTRA],
        M[warp + W_ITEM_ORDINAL],
        step_of(M, P, warp, cold),
    )
    return max(int(answer), t + 1)


def add_backlog(M: State, sm: int, start: int, ticks: int) -> None:
    """Add work to the asynchronous backlog of shared memory from tick `start` on."""
    M[sm + S_BACKLOG] = max(M[sm + S_BACKLOG], start) + ticks


def serve_lsu(M: State, warp: int, t: int, ticks: int) -> int:
    """Pass an access through the SM's load/store unit and return its start in ticks."""
    sm, sub = M[warp + W_SM], M[warp + W_SUB]
    start = max(M[sm + S_LSU_FREE], t << TICK_BITS)
    M[sm + S_LSU_FREE] = start + ticks
    M[sub + Q_LSU + (M[sub + Q_LSU_COUNT] & (QUEUE_SLOTS - 1))] = start
    M[sub + Q_LSU_COUNT] += 1
    return int(start)


def issue_shared(M: State, P: Program, warp: int, row: int, t: int) -> None:
    """LDS, STS, LDSM, STSM."""
    cold = P[row + P_COLD]
    ticks = P[cold + X_DURATION]
    start = serve_lsu(M, warp, t, ticks)
    sm = M[warp + W_SM]
    add_backlog(M, sm, start, ticks)
    M[sm + S_SHARED_BYTES] += P[cold + X_BYTES]
    done = ((start + ticks) >> TICK_BITS) - 1 + P[cold + X_LATENCY]
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], done)
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], (start >> TICK_BITS) + 2)
    M[H_WRITTEN], M[H_READ] = done, (start >> TICK_BITS) + 2


def issue_global(M: State, P: Program, L: State, X: State, warp: int, row: int, t: int) -> None:
    """LDG, STG, RED, LDGSTS."""
    cold = P[row + P_COLD]
    start = serve_lsu(M, warp, t, P[cold + X_DURATION]) >> TICK_BITS
    answer = request(M, P, X, warp, cold, t, start + 1)
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], answer)
    read = start + 2
    if P[cold + X_KIND] != 0:
        read = max(read, X[TAKEN] >> GRAIN_BITS)
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], read)
    M[H_WRITTEN], M[H_READ] = answer, read
    if P[cold + X_KIND] != 0:
        cta = M[warp + W_CTA]
        M[cta + C_READ] = max(M[cta + C_READ], read)
        M[cta + C_VISIBLE] = max(M[cta + C_VISIBLE], answer)
        M[H_END] = max(M[H_END], answer)
    elif P[cold + X_GROUP_COPY] != 0:
        M[warp + W_COPY_OPEN] = max(M[warp + W_COPY_OPEN], answer)
        M[M[warp + W_SM] + S_SHARED_BYTES] += P[cold + X_BYTES]
        post(M, answer, EV_COPY, 0, row, M[warp + W_SM])
    if M[H_LOG] == 2:
        if P[cold + X_KIND] != 0:
            record(M, P, L, warp, row, LOG_STORE, t, read, 0)
        else:
            record(M, P, L, warp, row, LOG_COPY, t, answer, M[warp + W_CTA_RANK])


def close_group(M: State, count_at: int, open_at: int, closed_at: int, ring: int) -> None:
    """Close a group of asynchronous copies; the ring remembers when it and all groups before are complete."""
    M[closed_at] = max(M[closed_at], M[open_at])
    M[open_at] = 0
    M[ring + (M[count_at] & (GROUPS - 1))] = M[closed_at]
    M[count_at] += 1
