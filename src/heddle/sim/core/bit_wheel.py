"""Changes of full and empty bits to come, by the cycle in which they are seen (docs/reference/fiber.md, section 3).

Every SM has a wheel: lists of clears and of sets for each of the next WHEEL cycles. They are made when the SM is looked
at next, cycle by cycle, the clears of a cycle before its sets, so that a set wins. A candidate that waits for a bit is
looked at in the cycle in which that is cleared; one that waits for something else, when a bit that it tests is set.
"""

from __future__ import annotations

from heddle.sim.core.bit_words import change_parts
from heddle.sim.core.bits import bit, ctz, drop_lowest, rotated
from heddle.sim.core.heap import State, post
from heddle.sim.core.layout import (
    ERROR_HEAP,
    EV_BIT,
    H_ERROR,
    H_NEXT,
    INF,
    Q_BIT_WAIT,
    Q_HELD_NEXT,
    Q_PASSED,
    Q_SENSITIVE,
    Q_WARPS,
    Q_WORDS,
    S_DUE,
    S_INDEX,
    S_QUARTERS,
    S_WHEEL,
    SUBPARTITIONS,
    W_SUB,
    W_SURE,
    W_TOUCHED,
    W_WAIT,
    W_WORDS,
    WORD_BITS,
)
from heddle.sim.core.layout_fiber import (
    BIT_WORDS,
    CHANGES,
    N_AT,
    N_CHANGE_WORDS,
    N_NEXT,
    N_PART,
    N_WHAT,
    ROW_ANY,
    ROW_FULL,
    ROWS_MASK,
    THREAD_WORDS,
    WHAT_BITS,
    WHAT_PLACE_SHIFT,
    WHEEL,
    Z_CHANGES,
    Z_CLEAR,
    Z_FREE,
    Z_FRESH,
    Z_SET,
    Z_USED,
)
from heddle.sim.core.wake import visit


def rouse(M: State, warp: int, t: int) -> None:
    """Let a candidate be looked at in cycle t."""
    if M[warp + W_SURE] > t:
        sub = M[warp + W_SUB]
        M[warp + W_SURE] = t
        M[sub + Q_HELD_NEXT] = min(M[sub + Q_HELD_NEXT], t)
        visit(M, sub, t)


def rouse_waiters(M: State, sub: int, word: int, part: int, t: int) -> None:
    """Let those candidates of a subpartition be looked at in cycle t that wait for one of these bits of a word."""
    rest = M[sub + Q_BIT_WAIT]
    while rest != 0:
        warp = M[sub + Q_WARPS] + ctz(rest) * W_WORDS
        rest = drop_lowest(rest)
        wait = M[warp + W_WAIT]
        if wait >> WORD_BITS == word and (part >> (wait & (1 << WORD_BITS) - 1)) & 1:
            rouse(M, warp, t)


def rouse_sensitive(M: State, sub: int, part: int, t: int) -> None:
    """Let those candidates be looked at in cycle t that may test one of these registers (of any word)."""
    rest = M[sub + Q_SENSITIVE]
    while rest != 0:
        warp = M[sub + Q_WARPS] + ctz(rest) * W_WORDS
        rest = drop_lowest(rest)
        if M[warp + W_TOUCHED] & part != 0:
            rouse(M, warp, t)


def disturb(M: State, sub: int, part: int, t: int) -> None:
    """Let a subpartition notice in cycle t that bits of these registers (of any word) have been set."""
    M[sub + Q_PASSED] = 0
    if M[sub + Q_SENSITIVE] != 0:
        rouse_sensitive(M, sub, part, t)


def make_in(M: State, sub: int, word: int, part: int, value: int, t: int) -> None:
    """Change bits of a view of E, in cycle t, and let those be looked at in its subpartition whom that concerns."""
    if value != 0:
        M[word] |= part
        disturb(M, sub, part, t)
    else:
        M[word] &= ~part
        if M[sub + Q_BIT_WAIT] != 0:
            rouse_waiters(M, sub, word, part, t)


def make_full(M: State, sub: int, at: int, part: int, parts: int, value: int, t: int) -> None:
    """Do so for parts of F, and for all parts together."""
    change_parts(M, at, part, parts, value)
    if value != 0:
        disturb(M, sub, part, t)
    elif M[sub + Q_BIT_WAIT] != 0:
        rouse_waiters(M, sub, at + ROW_ANY * BIT_WORDS, part, t)


def make(M: State, sm: int, at: int, part: int, what: int, value: int, t: int) -> None:
    """Make a change that is due in cycle t; `at`: the word of its registers in the first row of their place."""
    rows, quarters = what & ROWS_MASK, sm + S_QUARTERS
    if rows >= 1 << ROW_FULL:
        sub = quarters + (what >> WHAT_PLACE_SHIFT) * Q_WORDS
        make_full(M, sub, at, part, rows >> ROW_FULL, value, t)
        return
    while rows != 0:
        view = ctz(rows)
        rows = drop_lowest(rows)
        make_in(M, quarters + view * Q_WORDS, at + view * BIT_WORDS, part, value, t)


def make_slot(M: State, sm: int, wheel: int, slot: int, t: int) -> None:
    """Make all changes of cycle t: clears, then sets."""
    for value in range(2):
        head = wheel + Z_CLEAR + value * (Z_SET - Z_CLEAR) + slot
        change = M[head]
        M[head] = 0
        while change != 0:
            following = M[change + N_NEXT]
            make(M, sm, M[change + N_AT], M[change + N_PART], M[change + N_WHAT], value, t)
            give_change(M, wheel, change)
            change = following
    M[wheel + Z_USED] &= ~bit(slot)


def catch_up(M: State, sm: int, t: int) -> None:
    """Make all changes of an SM up to cycle t, if S_DUE says that there are some."""
    wheel, due = M[sm + S_WHEEL], M[sm + S_DUE]
    while due <= t:
        make_slot(M, sm, wheel, due & (WHEEL - 1), due)
        used = M[wheel + Z_USED]
        due = due + ctz(rotated(used, due & (WHEEL - 1))) if used != 0 else INF
    M[sm + S_DUE] = due


def take_change(M: State, wheel: int) -> int:
    """Return the address of a change that was not in use, 0 if there is none."""
    change = M[wheel + Z_FREE]
    if change != 0:
        M[wheel + Z_FREE] = M[change + N_NEXT]
        return int(change)
    fresh = M[wheel + Z_FRESH]
    if fresh == CHANGES:
        return 0
    M[wheel + Z_FRESH] = fresh + 1
    return int(wheel + Z_CHANGES + fresh * N_CHANGE_WORDS)


def give_change(M: State, wheel: int, change: int) -> None:
    """Note that a change is not in use any more."""
    M[change + N_NEXT] = M[wheel + Z_FREE]
    M[wheel + Z_FREE] = change


def send(M: State, sm: int, at: int, part: int, what: int, value: int, due: int, t: int) -> None:
    """Let a change be made in cycle `due`; t is the cycle now. `part`: registers of a word; `what`: rows and place."""
    wheel = M[sm + S_WHEEL]
    if M[sm + S_DUE] < t:
        catch_up(M, sm, t - 1)
    change = take_change(M, wheel) if due < t + WHEEL else 0
    if change == 0 and due > t:
        post(M, due, EV_BIT, at, part, sm << WHAT_BITS | value << WHAT_BITS - 1 | what)
    elif change == 0:
        M[H_ERROR] = ERROR_HEAP
    else:
        slot = due & (WHEEL - 1)
        head = wheel + (Z_SET if value != 0 else Z_CLEAR) + slot
        M[change + N_NEXT] = M[head]
        M[change + N_AT], M[change + N_PART], M[change + N_WHAT] = at, part, what
        M[head] = change
        M[wheel + Z_USED] |= bit(slot)
        M[sm + S_DUE] = min(M[sm + S_DUE], due)


def send_now(M: State, sm: int, at: int, part: int, what: int, value: int, t: int) -> None:
    """Let a change be made in this cycle, t, in which the SM has not been looked at yet."""
    send(M, sm, at, part, what, value, t, t)
    next_at = M[H_NEXT] + M[sm + S_INDEX]
    M[next_at] = min(M[next_at], t)


def happen_bit(M: State, at: int, part: int, packed: int, t: int) -> None:
    """A change that was an event until now is due in cycle t."""
    what, value = packed & (1 << WHAT_BITS - 1) - 1, (packed >> WHAT_BITS - 1) & 1
    send_now(M, packed >> WHAT_BITS, at, part, what, value, t)


def somebody_waits(M: State, sm: int) -> bool:
    """Tell whether a candidate of an SM is to be looked at when a bit changes."""
    waiting = 0
    for k in range(SUBPARTITIONS):
        sub = sm + S_QUARTERS + k * Q_WORDS
        waiting |= M[sub + Q_BIT_WAIT] | M[sub + Q_SENSITIVE]
    return bool(waiting != 0)


def forget_thread(M: State, sm: int, thread: int, t: int) -> None:
    """Make all changes to come of a FIBER-thread in cycle t, in their order, and forget them."""
    if M[sm + S_DUE] < t:
        catch_up(M, sm, t - 1)
    wheel = M[sm + S_WHEEL]
    for k in range(WHEEL):
        slot = (t + k) & (WHEEL - 1)
        for value in range(2):
            at = wheel + Z_CLEAR + value * (Z_SET - Z_CLEAR) + slot
            while M[at] != 0:
                change = M[at]
                word, what = M[change + N_AT], M[change + N_WHAT]
                if thread <= word and word < thread + THREAD_WORDS:
                    if what & ROWS_MASK >= 1 << ROW_FULL:  # nobody tests E any more
                        change_parts(M, word, M[change + N_PART], (what & ROWS_MASK) >> ROW_FULL, value)
                    M[at] = M[change + N_NEXT]
                    give_change(M, wheel, change)
                else:
                    at = change + N_NEXT
