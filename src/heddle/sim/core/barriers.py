"""Barriers: mbarriers with arrivals and expected bytes, named barriers of a CTA, the cluster barrier, semaphores."""

from __future__ import annotations

from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    A_WORDS,
    B_BYTES,
    B_WORDS,
    C_MBARRIERS,
    C_WORDS,
    EV_ARRIVE,
    H_CLUSTER_SIZE,
    H_DEPTH,
    H_SEMAPHORES,
    H_SLOTS,
    INF,
    K_CTAS,
    W_CLUSTER,
    W_CTA,
    W_CTA_RANK,
    W_ITEM,
    W_LINK,
    W_NEXT_OK,
    W_PARITY,
    W_REASON,
    W_STAGE,
    W_WAKE,
    X_BARRIER,
    X_BARRIER_CTA,
    X_BARRIER_OFFSET,
    X_BARRIER_RING,
    X_BYTES,
    X_FLIP,
    X_ID,
)
from heddle.sim.core.wake import schedule
from heddle.sim.result import Stall

BARRIER, MBARRIER, SEMAPHORE = int(Stall.BARRIER), int(Stall.MBARRIER), int(Stall.SEMAPHORE)


def mbarrier_of(M: State, P: Program, warp: int, cold: int, cta: int) -> int:
    """Return the address of the mbarrier that an instruction names, in the CTA `cta`."""
    index = P[cold + X_BARRIER_OFFSET]
    ring = P[cold + X_BARRIER_RING]
    if ring >= 0:
        index += M[warp + W_STAGE + ring]
        if index >= M[H_DEPTH + ring]:
            index -= M[H_DEPTH + ring]  # the offset is below the depth
    return int(M[cta + C_MBARRIERS] + (P[cold + X_BARRIER] + index) * B_WORDS)


def asked_parity(M: State, P: Program, warp: int, cold: int) -> int:
    """Return the parity of the phase that a wait asks for."""
    parity = P[cold + X_FLIP]
    ring = P[cold + X_BARRIER_RING]
    if ring >= 0:
        parity ^= M[warp + W_PARITY + ring]
    return int(parity)


def peer_of(M: State, warp: int) -> int:
    """Return the address of the other CTA of the pair of ranks 2i and 2i + 1."""
    step = M[H_SLOTS] * C_WORDS
    return int(M[warp + W_CTA] + (step if M[warp + W_CTA_RANK] & 1 == 0 else -step))


def arrive(M: State, P: Program, warp: int, cold: int, t: int, remote: int) -> None:
    """Post one arrival for cycle t, `remote` cycles later at other CTAs, at the barriers that the instruction names."""
    own = M[warp + W_CTA]
    which = P[cold + X_BARRIER_CTA]
    if which == 0:
        post(M, t, EV_ARRIVE, mbarrier_of(M, P, warp, cold, own), 0, 0)
        return
    count = M[H_CLUSTER_SIZE] if which == 2 else 1
    cta = peer_of(M, warp) if which == 3 else M[M[warp + W_CLUSTER] + K_CTAS]
    for _ in range(count):
        delay = 0 if cta == own else remote
        post(M, t + delay, EV_ARRIVE, mbarrier_of(M, P, warp, cold, cta), 0, 0)
        cta += M[H_SLOTS] * C_WORDS


def expect(M: State, P: Program, warp: int, cold: int) -> None:
    """Let the named barriers expect more bytes, at once."""
    which = P[cold + X_BARRIER_CTA]
    cta = M[warp + W_CTA] if which == 0 else M[M[warp + W_CLUSTER] + K_CTAS]
    if which == 3:
        cta = peer_of(M, warp)
    for _ in range(M[H_CLUSTER_SIZE] if which == 2 else 1):
        M[mbarrier_of(M, P, warp, cold, cta) + B_BYTES] += P[cold + X_BYTES]
        cta += M[H_SLOTS] * C_WORDS


def release_named(M: State, P: Program, first: int, release: int, t: int) -> None:
    """Let the warps of a waiter list go on in cycle `release`."""
    warp = first
    while warp != 0:
        following = M[warp + W_LINK]
        M[warp + W_LINK] = 0
        M[warp + W_NEXT_OK] = max(M[warp + W_WAKE], release)
        schedule(M, P, warp, t)
        warp = following


def meet(M: State, P: Program, warp: int, place: int, warps: int, cost: int, wait: int, t: int) -> None:
    """Arrive at a barrier (count and waiter list at `place`); the last of `warps` lets all waiting warps go on."""
    M[place] += 1
    if wait != 0:
        M[warp + W_REASON] = BARRIER
        M[warp + W_WAKE] = M[warp + W_NEXT_OK]
        M[warp + W_NEXT_OK] = INF
    if M[place] < warps:
        if wait != 0:
            M[warp + W_LINK] = M[place + 1]
            M[place + 1] = warp
        return
    release = t + max(1, cost)
    first = M[place + 1]
    M[place] = 0
    M[place + 1] = 0
    if wait != 0:
        M[warp + W_NEXT_OK] = max(M[warp + W_WAKE], release)
    release_named(M, P, first, release, t)


def semaphore_of(M: State, P: Program, warp: int, cold: int) -> int:
    """Return the address of the semaphore whose index is in the warp's work item."""
    return int(M[H_SEMAPHORES] + M[M[warp + W_ITEM] + P[cold + X_ID]] * A_WORDS)
