"""One cycle of one SM: wake warps, find who can issue (conditions e to g), account who cannot, pick, issue."""

from __future__ import annotations

from heddle.sim.core.accounting import credit
from heddle.sim.core.arbiter import grant
from heddle.sim.core.bit_wheel import catch_up, somebody_waits
from heddle.sim.core.bits import above, bit, call_policy, cold, ctz, drop_lowest, top
from heddle.sim.core.blocked import candidate_until, credit_blocked
from heddle.sim.core.blocked_fiber import is_ready, look_again
from heddle.sim.core.clears import make_clears
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
    Q_CLEARS_NEXT,
    Q_FAR,
    Q_FAR_NEXT,
    Q_HELD,
    Q_HELD_NEXT,
    Q_INDEX,
    Q_LAST,
    Q_NEXT,
    Q_PASSED,
    Q_RING,
    Q_RING_USED,
    Q_WARPS,
    Q_WORDS,
    S_DUE,
    S_QUARTERS,
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
    """Take the warps out of the wake ring whose cycle has come, and those from beyond it."""
    slot = sub + Q_RING + (t & (WAKE_SLOTS - 1))
    due = M[slot]
    M[slot] = 0
    M[sub + Q_RING_USED] &= ~bit(t & (WAKE_SLOTS - 1))
    if M[sub + Q_FAR_NEXT] <= t:
        due |= take_far(M, sub, t)
    while due != 0:
        warp = M[sub + Q_WARPS] + ctz(due) * W_WORDS
        due = drop_lowest(due)
        wake(M, P, warp, t)


def somebody_wakes(M: State, sub: int, t: int) -> bool:
    """Tell whether a warp of the subpartition wakes in cycle t."""
    return bool(M[sub + Q_RING + (t & (WAKE_SLOTS - 1))] != 0 or M[sub + Q_FAR_NEXT] <= t)


@cold
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
    if somebody_wakes(M, sub, t):
        wake_due(M, P, sub, t)
    rest = M[sub + Q_CANDIDATES]
    ready = 0
    soon = INF
    while rest != 0:
        i = ctz(rest)
        rest = drop_lowest(rest)
        until = candidate_until(M, P, sub, M[sub + Q_WARPS] + i * W_WORDS, t)
        if until <= t:
            ready |= bit(i)
        else:
            soon = min(soon, until)
    release(M, P, sub, ready, t)
    if ready != 0:
        i = choose(M, sub, ready, t)
        warp = M[sub + Q_WARPS] + i * W_WORDS
        credit(M, P, warp, NOT_SELECTED, t)
        M[sub + Q_CANDIDATES] &= ~bit(i)
        issue(M, P, L, X, sub, warp, t)
        if M[sub + Q_CANDIDATES] != 0:
            soon = t + 1
    M[sub + Q_NEXT] = min(soon, next_wake(M, sub, t))


def release(M: State, P: Program, sub: int, ready: int, t: int) -> None:
    """Account what held those candidates up to cycle t that can issue now."""
    released = ready & M[sub + Q_BLOCKED]
    M[sub + Q_BLOCKED] ^= released
    while released != 0:
        credit_blocked(M, P, sub, M[sub + Q_WARPS] + ctz(released) * W_WORDS, t)
        released = drop_lowest(released)


def step_wefts(M: State, P: Program, L: State, X: State, sub: int, t: int) -> None:
    """Do so in a program of mode fiber."""
    if somebody_wakes(M, sub, t):
        wake_due(M, P, sub, t)
    if M[sub + Q_CLEARS_NEXT] <= t:
        make_clears(M, sub, t)
    if M[sub + Q_HELD_NEXT] <= t:
        look_again(M, sub, t)
    rest = M[sub + Q_CANDIDATES] & ~M[sub + Q_HELD]
    ready = 0
    while rest != 0:
        i = ctz(rest)
        rest = drop_lowest(rest)
        if is_ready(M, P, sub, M[sub + Q_WARPS] + i * W_WORDS, t):
            ready |= bit(i)
    if ready != 0:
        release(M, P, sub, ready, t)
        i = choose(M, sub, ready, t)
        warp = M[sub + Q_WARPS] + i * W_WORDS
        credit(M, P, warp, NOT_SELECTED, t)
        if may_issue(M, P, sub, warp, t):
            M[sub + Q_CANDIDATES] &= ~bit(i)
            M[sub + Q_PASSED] &= ~bit(i)
            issue_weft(M, P, L, X, sub, warp, t)
        else:
            credit(M, P, warp, READ_PORT, t + 1)
    soon = t + 1 if M[sub + Q_CANDIDATES] & ~M[sub + Q_HELD] != 0 else M[sub + Q_HELD_NEXT]
    M[sub + Q_NEXT] = min(soon, next_wake(M, sub, t))


def step_sm(M: State, P: Program, L: State, X: State, sm: int, t: int) -> int:
    """Simulate cycle t of an SM and return the next cycle in which something can happen there."""
    first = sm + S_QUARTERS
    if M[H_FIBER] == 0:
        step_due(M, P, L, X, first + (t & (SUBPARTITIONS - 1)) * Q_WORDS, t)
        step_due(M, P, L, X, first + ((t + 1) & (SUBPARTITIONS - 1)) * Q_WORDS, t)
        step_due(M, P, L, X, first + ((t + 2) & (SUBPARTITIONS - 1)) * Q_WORDS, t)
        step_due(M, P, L, X, first + ((t + 3) & (SUBPARTITIONS - 1)) * Q_WORDS, t)
        return next_step(M, first)
    if M[sm + S_DUE] <= t and M[H_BITS] != 0:
        catch_up(M, sm, t)
    rest = due_subpartitions(M, first, t)
    while rest != 0:
        sub = first + ((t + ctz(rest)) & (SUBPARTITIONS - 1)) * Q_WORDS
        rest = drop_lowest(rest)
        step_wefts(M, P, L, X, sub, t)
    soon = next_step(M, first)
    if M[sm + S_DUE] < soon and M[H_BITS] != 0 and somebody_waits(M, sm):
        soon = M[sm + S_DUE]
    return int(soon)


def step_due(M: State, P: Program, L: State, X: State, sub: int, t: int) -> None:
    """Simulate cycle t of a subpartition if something can happen there."""
    if M[sub + Q_NEXT] <= t:
        step_subpartition(M, P, L, X, sub, t)


def due_subpartitions(M: State, first: int, t: int) -> int:
    """Return which subpartitions are to be looked at in cycle t, in their order in this cycle."""
    due = int(M[first + Q_NEXT] <= t)
    due |= int(M[first + Q_WORDS + Q_NEXT] <= t) << 1
    due |= int(M[first + 2 * Q_WORDS + Q_NEXT] <= t) << 2
    due |= int(M[first + 3 * Q_WORDS + Q_NEXT] <= t) << 3
    return ((due | due << SUBPARTITIONS) >> (t & (SUBPARTITIONS - 1))) & ((1 << SUBPARTITIONS) - 1)


def next_step(M: State, first: int) -> int:
    """Return the next cycle in which a subpartition is to be looked at."""
    soon = min(M[first + Q_NEXT], M[first + Q_WORDS + Q_NEXT])
    return int(min(soon, M[first + 2 * Q_WORDS + Q_NEXT], M[first + 3 * Q_WORDS + Q_NEXT]))
