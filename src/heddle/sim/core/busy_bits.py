"""Full and empty bits of registers (docs/reference/fiber.md, section 3): changes with the cycle in which they are seen.

A bit in one place is the last change seen there, as `cycle << 1 | value`: of two changes the larger number decides, so
that a set wins over a clear of the same cycle, in whatever order they are added. Changes to come are kept beside it;
what does not fit there is an event. Whoever waits for a register is looked at again when a change is added.
"""

from __future__ import annotations

from heddle.sim.core.bits import bit, ctz, drop_lowest
from heddle.sim.core.heap import State, post
from heddle.sim.core.layout import (
    EV_BIT,
    INF,
    Q_INDEX,
    Q_WARPS,
    Q_WORDS,
    S_QUARTERS,
    ST_CANDIDATE,
    SUBPARTITIONS,
    W_BIT,
    W_STATE,
    W_SUB,
    W_SURE,
    W_WORDS,
)
from heddle.sim.core.layout_fiber import (
    CHANGE_BITS,
    CHANGE_FULL,
    CHANGE_MASK_SHIFT,
    CHANGE_ORIGIN_SHIFT,
    CHANGE_SET,
    CHANGES,
    H_DELAY,
    PARTS,
    R_CHANGES,
    R_COUNT,
    R_EMPTY,
    R_FULL,
    R_WAITERS,
)
from heddle.sim.core.wake import visit


def see(M: State, register: int, change: int, t: int) -> bool:
    """Let a change be seen wherever that is due in cycle t; tell whether all have seen it."""
    due = change >> CHANGE_BITS
    if due > t:
        return False
    value = change & CHANGE_SET
    mask = change >> CHANGE_MASK_SHIFT
    if change & CHANGE_FULL:
        for part in range(PARTS):
            if (mask >> part) & 1:
                M[register + R_FULL + part] = max(M[register + R_FULL + part], due << 1 | value)
        return True
    origin = (change >> CHANGE_ORIGIN_SHIFT) & 3
    later = due + M[H_DELAY]
    for view in range(SUBPARTITIONS):
        if (mask >> view) & 1:
            seen = due if view == origin else later
            if seen <= t:
                M[register + R_EMPTY + view] = max(M[register + R_EMPTY + view], seen << 1 | value)
    return bool(later <= t)


def settle(M: State, register: int, t: int) -> None:
    """Bring the bits of a register up to cycle t."""
    count = M[register + R_COUNT]
    i = 0
    while i < count:
        if see(M, register, M[register + R_CHANGES + i], t):
            count -= 1
            M[register + R_CHANGES + i] = M[register + R_CHANGES + count]
        else:
            i += 1
    M[register + R_COUNT] = count


def next_change(M: State, register: int, view: int, t: int) -> int:
    """Return the next cycle after t, in which the register is settled, that changes E as a view sees it or F."""
    soon = INF
    for i in range(M[register + R_COUNT]):
        change = M[register + R_CHANGES + i]
        due = change >> CHANGE_BITS
        if change & CHANGE_FULL == 0 and view != (change >> CHANGE_ORIGIN_SHIFT) & 3:
            due += M[H_DELAY]
        if due > t:
            soon = min(soon, due)
    return int(soon)


def rouse(M: State, warp: int, t: int) -> None:
    """Let a candidate be looked at in cycle t."""
    if M[warp + W_STATE] == ST_CANDIDATE and M[warp + W_SURE] > t:
        M[warp + W_SURE] = t
        visit(M, M[warp + W_SUB], t)


def rouse_waiters(M: State, register: int, sm: int, t: int) -> None:
    """Let all that wait for a register be looked at in cycle t."""
    for place in range(SUBPARTITIONS):
        rest = M[register + R_WAITERS + place]
        if rest != 0:
            M[register + R_WAITERS + place] = 0
            warps = M[sm + S_QUARTERS + place * Q_WORDS + Q_WARPS]
            while rest != 0:
                rouse(M, warps + ctz(rest) * W_WORDS, t)
                rest = drop_lowest(rest)


def wait_for(M: State, register: int, warp: int) -> None:
    """Let a warp be looked at when the register's bits get another change."""
    at = register + R_WAITERS + M[M[warp + W_SUB] + Q_INDEX]
    M[at] |= bit(M[warp + W_BIT])


def add_change(M: State, register: int, change: int, sm: int, look: int) -> None:
    """Add a change of a register's bits; whoever waits for them is looked at in cycle `look`."""
    count = M[register + R_COUNT]
    if count == CHANGES:
        settle(M, register, look - 1)
        count = M[register + R_COUNT]
    if count < CHANGES:
        M[register + R_CHANGES + count] = change
        M[register + R_COUNT] = count + 1
    else:
        due = change >> CHANGE_BITS
        post(M, max(due, look), EV_BIT, register, change, sm)
        if change & CHANGE_FULL == 0 and M[H_DELAY] > 0:
            post(M, max(due + M[H_DELAY], look), EV_BIT, register, change, sm)
    rouse_waiters(M, register, sm, look)


def empty_change(M: State, due: int, value: int, origin: int, mask: int) -> int:
    """Return a change of E that the views in `mask` see: the origin's in cycle `due`, others later."""
    return int(due << CHANGE_BITS | mask << CHANGE_MASK_SHIFT | origin << CHANGE_ORIGIN_SHIFT | value)


def full_change(M: State, due: int, value: int, origin: int, place: int, mask: int) -> int:
    """Return a change of parts of F of a register of subpartition `place`, caused in `origin` for cycle `due`."""
    seen = due if origin == place else due + M[H_DELAY]
    return int(seen << CHANGE_BITS | mask << CHANGE_MASK_SHIFT | CHANGE_FULL | value)
