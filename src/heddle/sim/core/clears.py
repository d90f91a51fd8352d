"""E of registers that only issues and write-backs in their own subpartition change (FLAG_PLAIN): sets and clears.

Each subpartition has a wheel of the clears of the next cycles, made when it is looked at next. A set is made at the
issue, although it is seen a cycle later, because nothing tests the bit in between; a clear that is due in that later
cycle is taken back, because a set wins (docs/reference/fiber.md, section 3).
"""

from __future__ import annotations

from heddle.sim.core.bit_wheel import catch_up, disturb, give_change, rouse_waiters, take_change
from heddle.sim.core.bits import bit, cold, ctz, drop_lowest, rotated
from heddle.sim.core.heap import State, post
from heddle.sim.core.layout import (
    ERROR_HEAP,
    EV_CLEAR,
    H_ERROR,
    INF,
    Q_BIT_WAIT,
    Q_CLEARS,
    Q_CLEARS_NEXT,
    Q_CLEARS_USED,
    Q_SET_AT,
    Q_SM,
    Q_WORDS,
    S_DUE,
    S_QUARTERS,
    S_WHEEL,
    SUBPARTITIONS,
    WORD_BITS,
)
from heddle.sim.core.layout_fiber import (
    D_AT,
    D_MORE,
    D_PART,
    D_SLOT_WORDS,
    N_AT,
    N_NEXT,
    N_PART,
    WHEEL,
)


def set_plain(M: State, sub: int, word: int, part: int, alone: int, t: int) -> None:
    """Set bits of a word for an issue of this subpartition in cycle t, seen from cycle t + 1 on.

    `alone`: no other weft tests them, and the one that issues tests nothing meanwhile.
    """
    M[word] |= part
    M[sub + Q_SET_AT] = t
    if M[sub + Q_CLEARS_NEXT] == t + 1:
        take_back(M, sub, word, part, t + 1)
    if alone == 0:
        disturb(M, sub, part, t + 1)


@cold
def take_back(M: State, sub: int, word: int, part: int, due: int) -> None:
    """Leave bits out of the clears of a cycle."""
    slot = M[sub + Q_CLEARS] + (due & (WHEEL - 1)) * D_SLOT_WORDS
    if M[slot + D_AT] == word:
        M[slot + D_PART] &= ~part
    change = M[slot + D_MORE]
    while change != 0:
        if M[change + N_AT] == word:
            M[change + N_PART] &= ~part
        change = M[change + N_NEXT]


def clear_plain(M: State, sub: int, word: int, part: int, due: int, alone: int, t: int) -> None:
    """Clear in cycle `due` bits of a word that have been set for cycle t + 1, in which the set wins; t is now.

    Those who wait for them are looked at in that cycle; there are none if `alone`.
    """
    if due <= t + 1:
        return
    if due - t >= WHEEL:
        post(M, due - 1, EV_CLEAR, word, part, sub)
        return
    add_clear(M, sub, word, part, due)
    if alone == 0 and M[sub + Q_BIT_WAIT] != 0:
        rouse_waiters(M, sub, word, part, due)


def add_clear(M: State, sub: int, word: int, part: int, due: int) -> None:
    """Put a clear into the wheel."""
    own = bit(due & (WHEEL - 1))
    slot = M[sub + Q_CLEARS] + (due & (WHEEL - 1)) * D_SLOT_WORDS
    if M[sub + Q_CLEARS_USED] & own == 0:
        M[sub + Q_CLEARS_USED] |= own
        M[sub + Q_CLEARS_NEXT] = min(M[sub + Q_CLEARS_NEXT], due)
        M[slot + D_AT], M[slot + D_PART], M[slot + D_MORE] = word, part, 0
    elif M[slot + D_AT] == word:
        M[slot + D_PART] |= part
    else:
        change = take_change(M, M[M[sub + Q_SM] + S_WHEEL])
        if change == 0:
            M[H_ERROR] = ERROR_HEAP
            return
        M[change + N_AT], M[change + N_PART], M[change + N_NEXT] = word, part, M[slot + D_MORE]
        M[slot + D_MORE] = change


def happen_clear(M: State, word: int, part: int, sub: int, t: int) -> None:
    """A clear that lay too far ahead until now is due in cycle t + 1."""
    if M[sub + Q_CLEARS_NEXT] <= t:
        make_clears(M, sub, t)
    add_clear(M, sub, word, part, t + 1)
    if M[sub + Q_BIT_WAIT] != 0:
        rouse_waiters(M, sub, word, part, t + 1)


def make_clears(M: State, sub: int, t: int) -> None:
    """Make the clears of a subpartition up to cycle t; there are some."""
    first = M[sub + Q_CLEARS_NEXT]
    rest = rotated(M[sub + Q_CLEARS_USED], first & (WHEEL - 1))
    while rest != 0 and first + ctz(rest) <= t:
        place = (first + ctz(rest)) & (WHEEL - 1)
        slot = M[sub + Q_CLEARS] + place * D_SLOT_WORDS
        M[sub + Q_CLEARS_USED] &= ~bit(place)
        rest = drop_lowest(rest)
        M[M[slot + D_AT]] &= ~M[slot + D_PART]
        change = M[slot + D_MORE]
        while change != 0:
            following = M[change + N_NEXT]
            M[M[change + N_AT]] &= ~M[change + N_PART]
            give_change(M, M[M[sub + Q_SM] + S_WHEEL], change)
            change = following
    M[sub + Q_CLEARS_NEXT] = first + ctz(rest) if rest != 0 else INF


def clear_due(M: State, sub: int, wait: int) -> int:
    """Return the first cycle in which the wheel clears the bit that W_WAIT names, INF if it does not."""
    word, part = wait >> WORD_BITS, bit(wait & (1 << WORD_BITS) - 1)
    first = M[sub + Q_CLEARS_NEXT]
    rest = rotated(M[sub + Q_CLEARS_USED], first & (WHEEL - 1))
    while rest != 0:
        ahead = ctz(rest)
        rest = drop_lowest(rest)
        slot = M[sub + Q_CLEARS] + ((first + ahead) & (WHEEL - 1)) * D_SLOT_WORDS
        if M[slot + D_AT] == word and M[slot + D_PART] & part != 0:
            return int(first + ahead)
        change = M[slot + D_MORE]
        while change != 0:
            if M[change + N_AT] == word and M[change + N_PART] & part != 0:
                return int(first + ahead)
            change = M[change + N_NEXT]
    return INF


def make_changes(M: State, sm: int, t: int) -> None:
    """Make all changes of bits of an SM up to cycle t."""
    if M[sm + S_DUE] <= t:
        catch_up(M, sm, t)
    for k in range(SUBPARTITIONS):
        sub = sm + S_QUARTERS + k * Q_WORDS
        if M[sub + Q_CLEARS_NEXT] <= t:
            make_clears(M, sub, t)
