"""Bulk copies by the tensor memory accelerator (TMA)."""

from __future__ import annotations

from heddle.sim.core.barriers import mbarrier_of, peer_of
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    C_READ,
    C_SM,
    C_VISIBLE,
    C_WORDS,
    EV_BYTES,
    EV_COPY,
    EV_LAND,
    H_ANSWERS,
    H_CLUSTER_SIZE,
    H_END,
    H_LOG,
    H_READ,
    H_REMOTE,
    H_SLOTS,
    H_WRITTEN,
    K_CTAS,
    LOG_COPY,
    LOG_STORE,
    P_COLD,
    QUEUE_SLOTS,
    S_INDEX,
    S_LINK_FREE,
    S_SHARED_BYTES,
    S_TMA,
    S_TMA_COUNT,
    S_TMA_FREE,
    TICK_BITS,
    W_BULK_OPEN,
    W_CLUSTER,
    W_CTA,
    W_CTA_RANK,
    W_ITEM_ORDINAL,
    W_SM,
    X_BARRIER_COUNT,
    X_BARRIER_CTA,
    X_BYTES,
    X_CAUSE,
    X_CTAS,
    X_DURATION,
    X_EXTRA,
    X_LINK,
    X_PARTS,
    X_READ,
    X_SHARED,
    X_SOURCE,
    X_STREAM,
    X_WRITE,
)
from heddle.sim.core.log import record
from heddle.sim.core.memory import memory_access_multicast
from heddle.sim.core.memory_layout import GRAIN_BITS, TAKEN
from heddle.sim.core.shared import add_backlog, block_of, part_of, request, set_counter, step_of


def serve_tma(M: State, sm: int, t: int, ticks: int) -> int:
    """Pass a bulk copy through the SM's TMA unit and return its start in ticks."""
    start = max(M[sm + S_TMA_FREE], t << TICK_BITS)
    M[sm + S_TMA_FREE] = start + ticks
    M[sm + S_TMA + (M[sm + S_TMA_COUNT] & (QUEUE_SLOTS - 1))] = start
    M[sm + S_TMA_COUNT] += 1
    return int(start)


def land_at(M: State, P: Program, warp: int, row: int, cta: int, answer: int, multicast: bool) -> None:
    """Post the landing of a bulk copy in a CTA: bytes in its shared memory, and at its barrier or its leader's."""
    cold = P[row + P_COLD]
    sm = M[cta + C_SM]
    M[sm + S_SHARED_BYTES] += P[cold + X_BYTES]
    leader = M[M[warp + W_CLUSTER] + K_CTAS]
    if P[cold + X_BARRIER_COUNT] == 0:
        post(M, answer, EV_COPY, 0, row, sm)
    elif P[cold + X_BARRIER_CTA] == 0 or multicast or cta == leader:
        post(M, answer, EV_LAND, mbarrier_of(M, P, warp, cold, cta), row, sm)
    else:
        post(M, answer, EV_COPY, 0, row, sm)
        post(M, answer + M[H_REMOTE], EV_BYTES, mbarrier_of(M, P, warp, cold, leader), row, sm)


def issue_bulk_load(M: State, P: Program, L: State, X: State, warp: int, row: int, t: int) -> None:
    """UTMALDG, to one CTA or to several of the cluster."""
    cold = P[row + P_COLD]
    sm = M[warp + W_SM]
    leave = (serve_tma(M, sm, t, P[cold + X_DURATION]) >> TICK_BITS) + 1
    ctas = P[cold + X_CTAS]
    if ctas <= 1:
        answer = request(M, P, X, warp, cold, t, leave)
        land_at(M, P, warp, row, M[warp + W_CTA], answer, False)
        if M[H_LOG] == 2:
            record(M, P, L, warp, row, LOG_COPY, t, answer, M[warp + W_CTA_RANK])
    else:
        answer = multicast(M, P, L, X, warp, row, t, leave)
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], answer)
    M[H_WRITTEN] = answer


def multicast(M: State, P: Program, L: State, X: State, warp: int, row: int, t: int, leave: int) -> int:
    """Load once for all CTAs of the cluster, each with its own answer; return this CTA's."""
    cold = P[row + P_COLD]
    cta = M[M[warp + W_CLUSTER] + K_CTAS]
    memory_access_multicast(
        X,
        t,
        leave << TICK_BITS,
        M[M[cta + C_SM] + S_INDEX],
        M[H_CLUSTER_SIZE],
        P[cold + X_STREAM],
        block_of(M, P, warp, cold),
        part_of(M, P, warp, cold),
        P[cold + X_PARTS],
        P[cold + X_BYTES],
        P[cold + X_EXTRA],
        M[warp + W_ITEM_ORDINAL],
        step_of(M, P, warp, cold),
        M,
        H_ANSWERS,
    )
    own = 0
    for i in range(M[H_CLUSTER_SIZE]):
        answer = max(M[H_ANSWERS + i], t + 1)
        if cta == M[warp + W_CTA]:
            own = answer
        land_at(M, P, warp, row, cta, answer, True)
        if M[H_LOG] == 2:
            record(M, P, L, warp, row, LOG_COPY, t, answer, i)
        cta += M[H_SLOTS] * C_WORDS
    return int(own)


def issue_bulk_store(M: State, P: Program, L: State, X: State, warp: int, row: int, t: int) -> None:
    """UTMASTG, UTMAREDG."""
    cold = P[row + P_COLD]
    sm, cta = M[warp + W_SM], M[warp + W_CTA]
    start = serve_tma(M, sm, t, P[cold + X_DURATION])
    add_backlog(M, sm, start, P[cold + X_SHARED])
    M[sm + S_SHARED_BYTES] += P[cold + X_BYTES]
    read = (start + P[cold + X_SHARED]) >> TICK_BITS
    answer = request(M, P, X, warp, cold, t, read + 1)
    read = max(read, X[TAKEN] >> GRAIN_BITS)
    M[warp + W_BULK_OPEN] = max(M[warp + W_BULK_OPEN], read)
    M[cta + C_READ] = max(M[cta + C_READ], read)
    M[cta + C_VISIBLE] = max(M[cta + C_VISIBLE], answer)
    M[H_END] = max(M[H_END], answer)
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], read)
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], answer)
    M[H_WRITTEN], M[H_READ] = answer, read
    if M[H_LOG] == 2:
        record(M, P, L, warp, row, LOG_STORE, t, read, 0)


def issue_bulk_peer(M: State, P: Program, L: State, warp: int, row: int, t: int) -> None:
    """UBLKCP.S.S: read shared memory, send it over the link, and land in the other CTA of the pair."""
    cold = P[row + P_COLD]
    sm, cta, peer = M[warp + W_SM], M[warp + W_CTA], peer_of(M, warp)
    start = serve_tma(M, sm, t, P[cold + X_DURATION])
    add_backlog(M, sm, start, P[cold + X_SOURCE])
    M[sm + S_SHARED_BYTES] += P[cold + X_BYTES]
    sent = max(M[sm + S_LINK_FREE], start) + P[cold + X_LINK]
    M[sm + S_LINK_FREE] = sent
    answer = (sent >> TICK_BITS) + P[cold + X_EXTRA]
    M[M[peer + C_SM] + S_SHARED_BYTES] += P[cold + X_BYTES]
    post(M, answer, EV_LAND, mbarrier_of(M, P, warp, cold, peer), row, M[peer + C_SM])
    M[cta + C_READ] = max(M[cta + C_READ], max(start + P[cold + X_SOURCE], sent) >> TICK_BITS)
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], answer)
    M[H_WRITTEN] = answer
    if M[H_LOG] == 2:
        record(M, P, L, warp, row, LOG_COPY, t, answer, M[warp + W_CTA_RANK] ^ 1)
