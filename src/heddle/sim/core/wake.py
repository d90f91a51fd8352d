"""Where a warp waits: among the candidates of its subpartition, in the wake ring, or for something that will wake it.

The ring of a subpartition holds, for each of the next WAKE_SLOTS cycles, the mask of warps that wake then; warps that
wake later are in one mask with the earliest of their cycles.
"""

from __future__ import annotations

from heddle.sim.core.accounting import own_ready
from heddle.sim.core.bits import bit, ctz, rotated
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    FLAG_CONDITION,
    H_NEXT,
    INF,
    P_FLAGS,
    Q_CANDIDATES,
    Q_FAR,
    Q_FAR_NEXT,
    Q_NEXT,
    Q_RING,
    Q_RING_USED,
    Q_SM,
    S_INDEX,
    ST_BARRIER,
    ST_CANDIDATE,
    ST_PENDING,
    ST_TIMED,
    W_BIT,
    W_DONE,
    W_NEXT_OK,
    W_ROW,
    W_STATE,
    W_SUB,
    W_WAKE,
    WAKE_SLOTS,
)


def visit(M: State, sub: int, t: int) -> None:
    """See to it that the subpartition is looked at in cycle t."""
    if M[sub + Q_NEXT] > t:
        M[sub + Q_NEXT] = t
        at = M[H_NEXT] + M[M[sub + Q_SM] + S_INDEX]
        if M[at] > t:
            M[at] = t


def enter_ring(M: State, sub: int, warp: int, wake: int, now: int) -> None:
    """Put the warp where it is found in cycle `wake`."""
    own = bit(M[warp + W_BIT])
    M[warp + W_STATE] = ST_TIMED
    M[warp + W_WAKE] = wake
    if wake - now < WAKE_SLOTS:
        slot = wake & (WAKE_SLOTS - 1)
        M[sub + Q_RING + slot] |= own
        M[sub + Q_RING_USED] |= bit(slot)
    else:
        M[sub + Q_FAR] |= own
        M[sub + Q_FAR_NEXT] = min(M[sub + Q_FAR_NEXT], wake)


def sleep(M: State, warp: int, wake: int, now: int) -> None:
    """Wake the warp in cycle `wake`, which has not been looked at yet."""
    sub = M[warp + W_SUB]
    enter_ring(M, sub, warp, wake, now)
    visit(M, sub, wake)


def make_candidate(M: State, warp: int, t: int) -> None:
    """Conditions a to d hold from cycle t on."""
    sub = M[warp + W_SUB]
    M[warp + W_STATE] = ST_CANDIDATE
    M[sub + Q_CANDIDATES] |= bit(M[warp + W_BIT])
    visit(M, sub, t)


def place(M: State, P: Program, sub: int, warp: int, t: int) -> int:
    """Decide in cycle t where the warp waits; its conditions a to c cannot hold before t + 1.

    Returns the cycle in which the subpartition must be looked at, INF if something else will wake the warp.
    """
    ready = own_ready(M, P, warp)
    if ready >= INF:
        M[warp + W_STATE] = ST_BARRIER if M[warp + W_NEXT_OK] >= INF else ST_PENDING
        return INF
    if ready <= t + 1 and M[warp + W_DONE] == t + 1 and not P[M[warp + W_ROW] + P_FLAGS] & FLAG_CONDITION:
        M[warp + W_STATE] = ST_CANDIDATE
        M[sub + Q_CANDIDATES] |= bit(M[warp + W_BIT])
        return t + 1
    wake = max(ready, t + 1)
    enter_ring(M, sub, warp, wake, t)
    return int(wake)


def schedule(M: State, P: Program, warp: int, t: int) -> None:
    """Decide in cycle t where a warp waits that may be of another subpartition, and see to it that it is looked at."""
    sub = M[warp + W_SUB]
    when = place(M, P, sub, warp, t)
    if when < INF:
        visit(M, sub, when)


def next_wake(M: State, sub: int, t: int) -> int:
    """Return the next cycle after t in which a warp of the subpartition wakes, INF if none."""
    used = M[sub + Q_RING_USED]
    soon = M[sub + Q_FAR_NEXT]
    if used != 0:
        soon = min(soon, t + 1 + ctz(rotated(used, t + 1)))
    return int(soon)
