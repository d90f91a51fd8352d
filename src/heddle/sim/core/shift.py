"""Move the whole state later by some cycles: times that lie ahead, and the wake rings. Counterpart of `relative`."""

from __future__ import annotations

from heddle.sim.core.heap import State
from heddle.sim.core.layout import (
    BANKS,
    C_GROUPS,
    C_READ,
    C_VISIBLE,
    C_WORDS,
    COLLECTIVES,
    COUNTERS,
    E_TIME,
    E_WORDS,
    G_READ,
    G_START,
    G_WORDS,
    GROUPS,
    H_CLUSTER_COUNT,
    H_CLUSTERS,
    H_CTAS,
    H_END,
    H_FIBER,
    H_GROUPS_PER_CTA,
    H_HEAP,
    H_HEAP_COUNT,
    H_LINES,
    H_NEXT,
    H_SLOTS,
    H_SM,
    H_SMS,
    H_TIME,
    H_WARP_COUNT,
    H_WARPS,
    INF,
    INTERVALS,
    K_FREE,
    K_WORDS,
    PIPES,
    Q_FAR,
    Q_FAR_NEXT,
    Q_HELD_NEXT,
    Q_LSU,
    Q_NEXT,
    Q_PIPE,
    Q_PORT,
    Q_RING,
    Q_RING_USED,
    Q_TMEM_FREE,
    Q_WORDS,
    QUEUE_SLOTS,
    S_ACTIVE,
    S_ACTIVE_HEAD,
    S_ACTIVE_TAIL,
    S_BACKLOG,
    S_FETCH_FREE,
    S_INDEX,
    S_LINES,
    S_LINK_FREE,
    S_LSU_FREE,
    S_MATRIX_FREE,
    S_PIPE,
    S_QUARTERS,
    S_TCGEN05,
    S_TMA,
    S_TMA_FREE,
    S_WORDS,
    ST_BARRIER,
    ST_DEAD,
    ST_TIMED,
    SUBPARTITIONS,
    TICK_BITS,
    W_AT_REST,
    W_BULK,
    W_BULK_CLOSED,
    W_BULK_OPEN,
    W_COPY,
    W_COPY_CLOSED,
    W_COPY_OPEN,
    W_DONE,
    W_FETCH,
    W_NEXT_OK,
    W_STATE,
    W_TCGEN05_DONE,
    W_WAKE,
    W_WORDS,
    WAKE_SLOTS,
)
from heddle.sim.core.shift_fiber import later, shift_fiber_sm, shift_thread, shift_weft
from heddle.sim.core.wake import sleep


def later_all(M: State, first: int, count: int, now: int, by: int) -> None:
    """Move `count` times."""
    for i in range(count):
        later(M, first + i, now, by)


def shift_sub(M: State, sub: int, t: int, cycles: int) -> None:
    """Move a subpartition, and empty its wake ring, which `shift_warp` fills again."""
    now, ticks = t << TICK_BITS, cycles << TICK_BITS
    later(M, sub + Q_NEXT, t, cycles)
    later(M, sub + Q_HELD_NEXT, t, cycles)
    later(M, sub + Q_TMEM_FREE, now, ticks)
    later_all(M, sub + Q_PORT, BANKS, now, ticks)
    later_all(M, sub + Q_PIPE, PIPES, now, ticks)
    later_all(M, sub + Q_LSU, QUEUE_SLOTS, now, ticks)
    for k in range(WAKE_SLOTS):
        M[sub + Q_RING + k] = 0
    M[sub + Q_RING_USED] = 0
    M[sub + Q_FAR] = 0
    M[sub + Q_FAR_NEXT] = INF


def shift_sm(M: State, sm: int, t: int, cycles: int) -> None:
    """Move an SM with its subpartitions."""
    now, ticks = t << TICK_BITS, cycles << TICK_BITS
    later(M, sm + S_LSU_FREE, now, ticks)
    later(M, sm + S_TMA_FREE, now, ticks)
    later(M, sm + S_LINK_FREE, now, ticks)
    later(M, sm + S_BACKLOG, now, ticks)
    later(M, sm + S_MATRIX_FREE, now, ticks)
    later(M, sm + S_FETCH_FREE, now, ticks)
    later_all(M, sm + S_TMA, QUEUE_SLOTS, now, ticks)
    later_all(M, sm + S_TCGEN05, QUEUE_SLOTS, now, ticks)
    later_all(M, sm + S_PIPE, PIPES, now, ticks)
    for k in range(M[sm + S_ACTIVE_HEAD], M[sm + S_ACTIVE_TAIL]):
        later_all(M, sm + S_ACTIVE + 2 * (k & (INTERVALS - 1)), 2, t, cycles)
    later_all(M, M[sm + S_LINES], M[H_LINES], t, cycles)
    for k in range(SUBPARTITIONS):
        shift_sub(M, sm + S_QUARTERS + k * Q_WORDS, t, cycles)
    later(M, M[H_NEXT] + M[sm + S_INDEX], t, cycles)


def shift_warp(M: State, warp: int, t: int, cycles: int) -> None:
    """Move a warp context."""
    state = M[warp + W_STATE]
    if state == ST_DEAD:
        return
    M[warp + W_DONE] += cycles
    later(M, warp + W_NEXT_OK, t, cycles)
    later(M, warp + W_FETCH, t, cycles)
    later_all(M, warp + W_AT_REST, COUNTERS, t, cycles)
    later(M, warp + W_COPY_OPEN, t, cycles)
    later(M, warp + W_COPY_CLOSED, t, cycles)
    later_all(M, warp + W_COPY, GROUPS, t, cycles)
    later(M, warp + W_BULK_OPEN, t, cycles)
    later(M, warp + W_BULK_CLOSED, t, cycles)
    later_all(M, warp + W_BULK, GROUPS, t, cycles)
    later(M, warp + W_TCGEN05_DONE, t, cycles)
    if state == ST_BARRIER:
        later(M, warp + W_WAKE, t, cycles)
    if state == ST_TIMED:
        sleep(M, warp, M[warp + W_WAKE] + cycles, t + cycles)


def shift_cta(M: State, cta: int, t: int, cycles: int) -> None:
    """Move a CTA and its warp groups."""
    later(M, cta + C_READ, t, cycles)
    later(M, cta + C_VISIBLE, t, cycles)
    for i in range(M[H_GROUPS_PER_CTA]):
        later_all(M, M[cta + C_GROUPS] + i * G_WORDS + G_START, 2 * COLLECTIVES, t, cycles)
        later(M, M[cta + C_GROUPS] + i * G_WORDS + G_READ, t, cycles)


def shift_fiber(M: State, t: int, cycles: int) -> None:
    """Move what a program of mode fiber adds."""
    for i in range(M[H_SMS]):
        shift_fiber_sm(M, M[H_SM] + i * S_WORDS, t, cycles)
    for i in range(M[H_WARP_COUNT]):
        shift_weft(M, M[H_WARPS] + i * W_WORDS, t, cycles)
    for i in range(M[H_SMS] * M[H_SLOTS]):
        shift_thread(M, M[H_CTAS] + i * C_WORDS, t, cycles)


def shift_state(M: State, t: int, cycles: int) -> None:
    """Move the state from cycle t, in which nothing has happened yet, to cycle t + cycles."""
    for i in range(M[H_SMS]):
        shift_sm(M, M[H_SM] + i * S_WORDS, t, cycles)
    for i in range(M[H_WARP_COUNT]):
        shift_warp(M, M[H_WARPS] + i * W_WORDS, t, cycles)
    for i in range(M[H_SMS] * M[H_SLOTS]):
        shift_cta(M, M[H_CTAS] + i * C_WORDS, t, cycles)
    if M[H_FIBER] != 0:
        shift_fiber(M, t, cycles)
    for i in range(M[H_CLUSTER_COUNT]):
        later(M, M[H_CLUSTERS] + i * K_WORDS + K_FREE, t, cycles)
    for i in range(M[H_HEAP_COUNT]):
        M[M[H_HEAP] + i * E_WORDS + E_TIME] += cycles
    later(M, H_END, t, cycles)
    M[H_TIME] = t + cycles
