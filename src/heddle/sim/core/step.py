"""One cycle of one SM: wake warps, find who can issue (conditions e to g), account who cannot, pick, issue."""

from __future__ import annotations

from heddle.sim.core.accounting import credit
from heddle.sim.core.arbiter import grant
from heddle.sim.core.bit_wheel import catch_up, next_due, somebody_waits
from heddle.sim.core.bits import above, bit, call_policy, ctz, drop_lowest, top
from heddle.sim.core.blocked import candidate_until, credit_blocked
from heddle.sim.core.blocked_fiber import weft_until
from heddle.sim.core.conditions import wake
from heddle.sim.core.heap import Program, State
from heddle.sim.core.issue import issue
from heddle.sim.core.issue_fiber import issue_weft
from heddle.sim.core.layout import (
    CONTEXTS,
    ERROR_POLICY,
    FLAG_REMOTE,
    H_BITS,
    H_ERROR,
    H_FIBER,
    H_POLICY,
    H_POLICY_ADDRESS,
    INF,
    P_FLAGS,
    POLICY_GTY,
    POLICY_LRR,
    POLICY_USER,
    Q_BLOCKED,
    Q_CANDIDATES,
    Q_FAR,
    Q_FAR_NEXT,
    Q_INDEX,
    Q_LAST,
    Q_NEXT,
    Q_RING,
    Q_RING_USED,
    Q_WARPS,
    Q_WORDS,
    S_QUARTERS,
    S_WHEEL,
    SUBPARTITIONS,
    W_DENIED,
    W_ROW,
    W_WAKE,
    W_WORDS,
    WAKE_SLOTS,
)
from heddle.sim.core.layout_fiber import H_DENIED
from heddle.sim.core.rows import is_off
from heddle.sim.core.wake import next_wake
from heddle.sim.result import Stall

NOT_SELECTED, READ_PORT = int(Stall.NOT_SELECTED), int(Stall.READ_PORT)


def wake_due(M: State, P: Program, sub: int, t: int) -> None:
    """Take the warps out of the wake ring whose cycle has come."""
    slot = t & (WAKE_SLOTS - 1)
    due = 0
    if (M[sub + Q_RING_USED] >> slot) & 1:
        due = M[sub + Q_RING + slot]
        M[sub + Q_RING + slot] = 0
        M[sub + Q_RING_USED] &= ~(1 << slot)
    if M[sub + Q_FAR_NEXT] <= t:
        due |= take_far(M, sub, t)
    while due != 0:
        warp = M[sub + Q_WARPS] + ctz(due) * W_WORDS
        due = drop_lowest(due)
        wake(M, P, warp, t)


def take_far(M: State, sub: int, t: int) -> int:
    """Return the mask of warps beyond the ring that wake in cycle t, and take them out."""
    due = 0
    rest = M[sub + Q_FAR]
    soon = INF
    while rest != 0:
        i = ctz(rest)
        rest = drop_lowest(rest)
        when = M[M[sub + Q_WARPS] + i * W_WORDS + W_WAKE]
        if when <= t:
            due |= bit(i)
        else:
            soon = min(soon, when)
    M[sub + Q_FAR] &= ~due
    M[sub + Q_FAR_NEXT] = soon
    return due


def choose(M: State, sub: int, ready: int, t: int) -> int:
    """Pick the bit of the warp that issues, by the scheduler policy."""
    last = M[sub + Q_LAST]
    policy = M[H_POLICY]
    if policy == POLICY_USER:
        chosen = call_policy(M[H_POLICY_ADDRESS], ready, last, M[sub + Q_INDEX], t)
        if chosen >= 0 and chosen < CONTEXTS and (ready >> chosen) & 1:
            return chosen
        M[H_ERROR] = ERROR_POLICY
        return ctz(ready)
    if policy == POLICY_LRR:
        after = above(ready, last) if last >= 0 else ready
        return ctz(after) if after != 0 else ctz(ready)
    if last >= 0 and (ready >> last) & 1:
        return int(last)
    return top(ready) if policy == POLICY_GTY else ctz(ready)


def may_issue(M: State, P: Program, sub: int, warp: int, t: int) -> bool:
    """Ask the arbiter if the selected weft's instruction needs it; tell whether it can issue."""
    row = M[warp + W_ROW]
    if P[row + P_FLAGS] & FLAG_REMOTE == 0 or is_off(M, P, warp, row):
        return True
    if M[warp + W_DENIED] > t or not grant(M, P, sub, warp, row, t):
        M[H_DENIED] += 1
        return False
    return True


def step_subpartition(M: State, P: Program, L: State, X: State, sub: int, t: int) -> None:
    """Simulate cycle t of a subpartition in which something can happen."""
    wake_due(M, P, sub, t)
    rest = M[sub + Q_CANDIDATES]
    ready = 0
    soon = INF
    fiber = M[H_FIBER]
    while rest != 0:
        i = ctz(rest)
        rest = drop_lowest(rest)
        if fiber == 0:
            until = candidate_until(M, P, sub, M[sub + Q_WARPS] + i * W_WORDS, t)
        else:
            until = weft_until(M, P, sub, M[sub + Q_WARPS] + i * W_WORDS, t)
        if until <= t:
            ready |= bit(i)
        else:
            soon = min(soon, until)
    released = ready & M[sub + Q_BLOCKED]
    M[sub + Q_BLOCKED] ^= released
    while released != 0:
        credit_blocked(M, P, sub, M[sub + Q_WARPS] + ctz(released) * W_WORDS, t)
        released = drop_lowest(released)
    if ready != 0:
        i = choose(M, sub, ready, t)
        warp = M[sub + Q_WARPS] + i * W_WORDS
        credit(M, P, warp, NOT_SELECTED, t)
        if fiber == 0:
            M[sub + Q_CANDIDATES] &= ~bit(i)
            issue(M, P, L, X, sub, warp, t)
        elif may_issue(M, P, sub, warp, t):
            M[sub + Q_CANDIDATES] &= ~bit(i)
            issue_weft(M, P, L, X, sub, warp, t)
        else:
            credit(M, P, warp, READ_PORT, t + 1)
        if M[sub + Q_CANDIDATES] != 0:
            soon = t + 1
    M[sub + Q_NEXT] = min(soon, next_wake(M, sub, t))


def step_sm(M: State, P: Program, L: State, X: State, sm: int, t: int) -> int:
    """Simulate cycle t of an SM and return the next cycle in which something can happen there."""
    first = sm + S_QUARTERS
    if M[H_BITS] != 0:
        catch_up(M, sm, t)
    for i in range(SUBPARTITIONS):
        sub = first + ((t + i) & (SUBPARTITIONS - 1)) * Q_WORDS
        if M[sub + Q_NEXT] <= t:
            step_subpartition(M, P, L, X, sub, t)
    soon = min(M[first + Q_NEXT], M[first + Q_WORDS + Q_NEXT])
    for i in range(2, SUBPARTITIONS):
        soon = min(soon, M[first + i * Q_WORDS + Q_NEXT])
    if M[H_BITS] != 0 and somebody_waits(M, sm):
        soon = min(soon, next_due(M, M[sm + S_WHEEL]))
    return int(soon)
