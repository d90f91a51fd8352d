"""The state of a simulation relative to a cycle: what decides the future, and nothing that only counts the past.

Two equal relative states (with equal loop counts ahead) have equal futures. Times in the past are 0, times to come are
distances; positions in rings are counted from the newest entry; loop counters and accounts are left out. Each function
writes words to `F` from `at` on and returns the next free place. Used by `fast_forward`; `shift` is its counterpart.
"""

from __future__ import annotations

from heddle.sim.core.heap import State
from heddle.sim.core.layout import (
    A_VALUE,
    A_WAITERS,
    A_WORDS,
    B_ARRIVED,
    B_BYTES,
    B_PARITY,
    B_WAITERS,
    B_WORDS,
    BANKS,
    C_GROUPS,
    C_LIVE,
    C_MBARRIERS,
    C_NAMED,
    C_READ,
    C_VISIBLE,
    C_WORDS,
    COLLECTIVES,
    COUNTERS,
    E_KIND,
    E_SEQUENCE,
    E_TIME,
    E_WHERE,
    E_WORDS,
    EV_FETCH,
    EV_WRITE_BACK,
    G_END,
    G_FORMED,
    G_READ,
    G_SIGNALS,
    G_START,
    G_WORDS,
    GROUPS,
    H_CLUSTER_COUNT,
    H_CLUSTERS,
    H_CTAS,
    H_END,
    H_FETCH,
    H_FIBER,
    H_GROUPS_PER_CTA,
    H_HEAP,
    H_HEAP_COUNT,
    H_LINES,
    H_LIVE,
    H_LSU_DEPTH,
    H_MBARRIERS,
    H_QUEUE_NEXT,
    H_RINGS,
    H_ROOTS,
    H_SEMAPHORE_COUNT,
    H_SEMAPHORES,
    H_SLOTS,
    H_SM,
    H_SMS,
    H_TCGEN05_DEPTH,
    H_WARP_COUNT,
    H_WARPS,
    INF,
    INTERVALS,
    K_ARRIVED,
    K_DRAINS,
    K_FREE,
    K_ITEMS,
    K_LIVE,
    K_WAITERS,
    K_WORDS,
    NAMED,
    PIPES,
    Q_BLOCKED,
    Q_CANDIDATES,
    Q_LAST,
    Q_LAST_ROW,
    Q_LSU,
    Q_LSU_COUNT,
    Q_PIPE,
    Q_PORT,
    Q_TMEM_FREE,
    Q_WORDS,
    QUEUE_SLOTS,
    RINGS,
    S_ACTIVE,
    S_ACTIVE_HEAD,
    S_ACTIVE_TAIL,
    S_BACKLOG,
    S_FETCH_FREE,
    S_LINES,
    S_LINK_FREE,
    S_LSU_FREE,
    S_MATRIX_FREE,
    S_MATRIX_OWNER,
    S_PIPE,
    S_QUARTERS,
    S_TCGEN05,
    S_TCGEN05_COUNT,
    S_TMA,
    S_TMA_COUNT,
    S_TMA_FREE,
    S_WORDS,
    ST_BARRIER,
    ST_DEAD,
    ST_GMMA,
    ST_SEMAPHORE,
    ST_TIMED,
    SUBPARTITIONS,
    TICK_BITS,
    W_ASK,
    W_AT_REST,
    W_BULK,
    W_BULK_CLOSED,
    W_BULK_COUNT,
    W_BULK_OPEN,
    W_CAUSE,
    W_COPY,
    W_COPY_CLOSED,
    W_COPY_COUNT,
    W_COPY_OPEN,
    W_DONE,
    W_FETCH,
    W_GROUP,
    W_ITEM_INDEX,
    W_ITEM_NUMBER,
    W_LINK,
    W_MMA,
    W_MMA_COUNT,
    W_MMA_COUNTERS,
    W_MMA_GROUPS,
    W_NEXT_OK,
    W_OTHER,
    W_PENDING,
    W_PHASE,
    W_PHASE_REASON,
    W_REASON,
    W_ROW,
    W_SIGNALS,
    W_STAGE,
    W_STATE,
    W_TCGEN05_DONE,
    W_WAKE,
    W_WORDS,
)
from heddle.sim.core.memory_forward import memory_relative
from heddle.sim.core.phases import relative_phase, relative_ring_phase
from heddle.sim.core.relative_fiber import (
    name_of,
    relative_fiber_sm,
    relative_thread,
    relative_waits,
    relative_weft,
)


def ahead(x: int, t: int) -> int:
    """Return how far a cycle lies ahead; 0 if it is past, INF if it is not known."""
    if x >= INF:
        return INF
    return max(x - t, 0)


def relative_ring(M: State, F: State, at: int, ring: int, count: int, length: int, now: int) -> int:
    """Write the last `length` entries of a ring of times, newest first; `count` entries have been written so far."""
    for i in range(length):
        F[at + i] = max(M[ring + ((count - 1 - i) & (QUEUE_SLOTS - 1))] - now, 0) if i < count else 0
    return at + length


def relative_groups(M: State, F: State, at: int, ring: int, count: int, t: int) -> int:
    """Write when the last GROUPS groups of asynchronous copies are complete, newest first."""
    for i in range(GROUPS):
        F[at + i] = max(M[ring + ((count - 1 - i) & (GROUPS - 1))] - t, 0) if i < count else 0
    return at + GROUPS


def relative_sub(M: State, F: State, at: int, sub: int, t: int) -> int:
    """Write a subpartition: masks, last issue, pipes, ports, queue. The wake ring follows from the warps."""
    now = t << TICK_BITS
    F[at] = M[sub + Q_CANDIDATES]
    F[at + 1] = M[sub + Q_BLOCKED]
    F[at + 2] = M[sub + Q_LAST]
    F[at + 3] = M[sub + Q_LAST_ROW]
    F[at + 4] = max(M[sub + Q_TMEM_FREE] - now, 0)
    at += 5
    for k in range(BANKS):
        F[at + k] = max(M[sub + Q_PORT + k] - now, 0)
    at += BANKS
    for k in range(PIPES):
        F[at + k] = max(M[sub + Q_PIPE + k] - now, 0)
    return relative_ring(M, F, at + PIPES, sub + Q_LSU, M[sub + Q_LSU_COUNT], M[H_LSU_DEPTH], now)


def relative_sm(M: State, F: State, at: int, sm: int, t: int) -> int:
    """Write an SM with its subpartitions."""
    now = t << TICK_BITS
    F[at] = max(M[sm + S_LSU_FREE] - now, 0)
    F[at + 1] = max(M[sm + S_TMA_FREE] - now, 0)
    F[at + 2] = max(M[sm + S_BACKLOG] - now, 0)
    F[at + 3] = max(M[sm + S_MATRIX_FREE] - now, 0)
    F[at + 4] = M[sm + S_MATRIX_OWNER]
    F[at + 5] = max(M[sm + S_FETCH_FREE] - now, 0)
    F[at + 6] = max(M[sm + S_LINK_FREE] - now, 0)
    at += 7
    for k in range(PIPES):
        F[at + k] = max(M[sm + S_PIPE + k] - now, 0)
    at = relative_ring(M, F, at + PIPES, sm + S_TMA, M[sm + S_TMA_COUNT], QUEUE_SLOTS, now)
    at = relative_ring(M, F, at, sm + S_TCGEN05, M[sm + S_TCGEN05_COUNT], M[H_TCGEN05_DEPTH], now)
    for k in range(M[sm + S_ACTIVE_HEAD], M[sm + S_ACTIVE_TAIL]):
        interval = sm + S_ACTIVE + 2 * (k & (INTERVALS - 1))
        if M[interval + 1] > t:
            F[at] = max(M[interval] - t, 0)
            F[at + 1] = M[interval + 1] - t
            at += 2
    F[at] = -1
    at += 1
    for k in range(M[H_LINES] if M[H_FETCH] != 0 else 0):
        there = M[M[sm + S_LINES] + k]
        F[at] = -1 if there == 0 else max(there - t, 0)
        at += 1
    for k in range(SUBPARTITIONS):
        at = relative_sub(M, F, at, sm + S_QUARTERS + k * Q_WORDS, t)
    return at


def relative_collectives(M: State, F: State, at: int, warp: int, t: int) -> int:
    """Write a warp's warp-group instructions relative to what its group has formed."""
    group = M[warp + W_GROUP]
    formed = M[group + G_FORMED]
    count, closed = M[warp + W_MMA_COUNT], M[warp + W_MMA_GROUPS]
    F[at] = count - formed
    F[at + 1] = M[warp + W_ASK] - formed if M[warp + W_STATE] == ST_GMMA else 0
    F[at + 2] = M[warp + W_SIGNALS] - M[group + G_SIGNALS]
    at += 3
    for n in range(formed, count):
        F[at] = M[warp + W_MMA_COUNTERS + (n & (QUEUE_SLOTS - 1))]
        at += 1
    for i in range(GROUPS):
        youngest = M[warp + W_MMA + ((closed - 1 - i) & (GROUPS - 1))] if i < closed else 0
        waits = youngest > formed
        if 0 < youngest <= formed and youngest > formed - COLLECTIVES:
            waits = M[group + G_END + ((youngest - 1) & (COLLECTIVES - 1))] > t
        F[at + i] = youngest - formed + COLLECTIVES if waits else 0
    return at + GROUPS


def relative_counters(M: State, F: State, at: int, warp: int, t: int) -> int:
    """Write a warp's dependence counters; why one is waited for counts only while it is not at rest."""
    for k in range(COUNTERS):
        rest = max(M[warp + W_AT_REST + k] - t, 0)
        F[at] = rest
        F[at + 1] = M[warp + W_PENDING + k]
        F[at + 2] = M[warp + W_CAUSE + k] if rest != 0 or M[warp + W_PENDING + k] != 0 else 0
        at += 3
    return at


def relative_warp(M: State, F: State, at: int, warp: int, t: int) -> int:
    """Write a warp context."""
    state = M[warp + W_STATE]
    F[at] = state
    if state == ST_DEAD:
        return at + 1
    F[at + 1] = M[warp + W_ROW]
    F[at + 2] = ahead(M[warp + W_NEXT_OK], t)
    F[at + 3] = M[warp + W_REASON]
    F[at + 4] = M[warp + W_DONE] - t
    F[at + 5] = ahead(M[warp + W_FETCH], t)
    F[at + 6] = max(M[warp + W_WAKE] - t, 0) if state in (ST_TIMED, ST_BARRIER) else 0
    F[at + 7] = M[warp + W_PHASE]
    F[at + 8] = M[warp + W_PHASE_REASON] if M[warp + W_PHASE] != 0 else 0
    F[at + 9] = M[warp + W_ITEM_INDEX]
    F[at + 10] = M[warp + W_ITEM_NUMBER]
    F[at + 11] = M[warp + W_LINK]
    F[at + 12] = M[warp + W_ASK] if state == ST_SEMAPHORE else 0  # of an mbarrier: the parity that it has
    F[at + 13] = max(M[warp + W_COPY_OPEN] - t, 0)
    F[at + 14] = max(M[warp + W_COPY_CLOSED] - t, 0)
    F[at + 15] = max(M[warp + W_BULK_OPEN] - t, 0)
    F[at + 16] = max(M[warp + W_BULK_CLOSED] - t, 0)
    F[at + 17] = max(M[warp + W_TCGEN05_DONE] - t, 0)
    F[at + 18] = M[warp + W_OTHER]
    at = relative_counters(M, F, at + 19, warp, t)
    for k in range(RINGS):
        F[at + k] = 0
        if (M[H_RINGS] >> k) & 1:
            F[at + k] = M[warp + W_STAGE + k] << 1 | relative_ring_phase(M, warp, k)
    at = relative_groups(M, F, at + RINGS, warp + W_COPY, M[warp + W_COPY_COUNT], t)
    at = relative_groups(M, F, at, warp + W_BULK, M[warp + W_BULK_COUNT], t)
    if M[warp + W_GROUP] != 0:
        at = relative_collectives(M, F, at, warp, t)
    return at


def relative_cta(M: State, F: State, at: int, cta: int, t: int) -> int:
    """Write a CTA: its barriers, what it waits for at its end, and its warp groups' unfinished collectives."""
    F[at] = M[cta + C_LIVE]
    F[at + 1] = max(M[cta + C_READ] - t, 0)
    F[at + 2] = max(M[cta + C_VISIBLE] - t, 0)
    at += 3
    for k in range(2 * NAMED):
        F[at + k] = M[cta + C_NAMED + k]
    at += 2 * NAMED
    for i in range(M[H_MBARRIERS]):
        barrier = M[cta + C_MBARRIERS] + i * B_WORDS
        F[at] = M[barrier + B_ARRIVED]
        F[at + 1] = M[barrier + B_BYTES] << 1 | relative_phase(M, M[barrier + B_PARITY], M[M[H_ROOTS] + i])
        F[at + 2] = M[barrier + B_WAITERS]
        at += 3
    for i in range(M[H_GROUPS_PER_CTA]):
        group = M[cta + C_GROUPS] + i * G_WORDS
        n = M[group + G_FORMED] - 1
        while n >= 0 and n >= M[group + G_FORMED] - COLLECTIVES and M[group + G_END + (n & (COLLECTIVES - 1))] > t:
            F[at] = max(M[group + G_START + (n & (COLLECTIVES - 1))] - t, 0)
            F[at + 1] = M[group + G_END + (n & (COLLECTIVES - 1))] - t
            at += 2
            n -= 1
        F[at] = -1
        F[at + 1] = max(M[group + G_READ] - t, 0)
        at += 2
    return at


def relative_cluster(M: State, F: State, at: int, cluster: int, t: int) -> int:
    """Write a cluster slot."""
    F[at] = M[cluster + K_LIVE] << 1 | M[cluster + K_DRAINS]
    F[at + 1] = max(M[cluster + K_FREE] - t, 0)
    F[at + 2] = M[cluster + K_ITEMS]
    F[at + 3] = M[cluster + K_ARRIVED]
    F[at + 4] = M[cluster + K_WAITERS]
    return at + 5


def relative_events(M: State, F: State, at: int, t: int) -> int:
    """Write the events to come, in their order: an insertion sort of (cycle, order of cause, ...)."""
    first, count = at + 1, M[H_HEAP_COUNT]
    F[at] = count
    for i in range(count):
        event = M[H_HEAP] + i * E_WORDS
        time, sequence = M[event + E_TIME] - t, M[event + E_SEQUENCE]
        place = first + i * E_WORDS
        while place > first and (
            F[place - E_WORDS + E_TIME] > time
            or (F[place - E_WORDS + E_TIME] == time and F[place - E_WORDS + E_SEQUENCE] > sequence)
        ):
            for k in range(E_WORDS):
                F[place + k] = F[place - E_WORDS + k]
            place -= E_WORDS
        F[place + E_TIME] = time
        F[place + E_SEQUENCE] = sequence
        for k in range(E_KIND, E_WORDS):
            F[place + k] = M[event + k]
        if M[event + E_KIND] in (EV_WRITE_BACK, EV_FETCH):
            F[place + E_WHERE] = name_of(M, M[event + E_WHERE])
    for i in range(count):
        F[first + i * E_WORDS + E_SEQUENCE] = i
    return int(first + count * E_WORDS)


def relative_fiber(M: State, F: State, at: int, t: int) -> int:
    """Write what a program of mode fiber adds."""
    for i in range(M[H_SMS]):
        sm = M[H_SM] + i * S_WORDS
        at = relative_fiber_sm(M, F, at, sm, t)
        for k in range(SUBPARTITIONS):
            at = relative_waits(M, F, at, sm + S_QUARTERS + k * Q_WORDS, t)
    for i in range(M[H_WARP_COUNT]):
        at = relative_weft(M, F, at, M[H_WARPS] + i * W_WORDS, t)
    for i in range(M[H_SMS] * M[H_SLOTS]):
        at = relative_thread(M, F, at, M[H_CTAS] + i * C_WORDS, t)
    return at


def relative_state(M: State, X: State, F: State, at: int, t: int) -> int:
    """Write the whole state relative to cycle t, in which nothing has happened yet; return the place after it."""
    F[at] = t & (SUBPARTITIONS - 1)
    F[at + 1] = M[H_LIVE]
    F[at + 2] = M[H_QUEUE_NEXT]
    F[at + 3] = max(M[H_END] - t, 0)
    at += 4
    for i in range(M[H_SMS]):
        at = relative_sm(M, F, at, M[H_SM] + i * S_WORDS, t)
    for i in range(M[H_WARP_COUNT]):
        at = relative_warp(M, F, at, M[H_WARPS] + i * W_WORDS, t)
    for i in range(M[H_SMS] * M[H_SLOTS]):
        at = relative_cta(M, F, at, M[H_CTAS] + i * C_WORDS, t)
    for i in range(M[H_CLUSTER_COUNT]):
        at = relative_cluster(M, F, at, M[H_CLUSTERS] + i * K_WORDS, t)
    for i in range(M[H_SEMAPHORE_COUNT]):
        F[at] = M[M[H_SEMAPHORES] + i * A_WORDS + A_VALUE]
        F[at + 1] = M[M[H_SEMAPHORES] + i * A_WORDS + A_WAITERS]
        at += 2
    if M[H_FIBER] != 0:
        at = relative_fiber(M, F, at, t)
    at = relative_events(M, F, at, t)
    return int(at + memory_relative(X, t, F, at))
