"""What the issue, consumption and write-back of an instruction do to full and empty bits (fiber.md, section 3)."""

from __future__ import annotations

from heddle.sim.core.bit_wheel import send
from heddle.sim.core.bit_words import part_of
from heddle.sim.core.clears import clear_plain, set_plain
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import C_POOL_REST, C_REST, W_CTA, W_SM, W_SUB, W_VIEW_OWN
from heddle.sim.core.layout_fiber import (
    ALL_PARTS,
    ALL_VIEWS,
    ANYBODY,
    BIND_CONSUME,
    BIND_HOLD,
    BIND_READERS_SHIFT,
    BIND_SCOPED_SHIFT,
    BIND_SLOTS,
    CHANGE_FULL,
    CHANGE_SET,
    FLAG_LOCAL,
    FLAG_PLAIN,
    FLAG_PRIVATE,
    FLAG_READS,
    FLAG_READS_POOL,
    FLAG_WRITES_POOL,
    H_BITS_CLEARED,
    H_BITS_SET,
    H_DELAY,
    H_PAPER,
    ROW_FULL,
    TEST_BASE_BITS,
    TESTS_BITS,
    WHAT_PLACE_SHIFT,
    Y_ACCUMULATOR,
    Y_BIND,
    Y_DST,
    Y_FLAGS,
    Y_LOCAL_SLOTS,
    Y_SOURCE,
    Y_SOURCES,
    Y_TEST,
    Y_TESTS,
)
from heddle.sim.core.registers import count_of, number_of, own_place, place_bits, place_of


def change_empty(M: State, warp: int, group: int, due: int, value: int, views: int, t: int) -> None:
    """Set or clear E of a group, seen from cycle `due` on in the weft's subpartition, later in others."""
    number, count, place = number_of(group), count_of(group), place_of(M, warp, group)
    M[H_BITS_SET if value else H_BITS_CLEARED] += count
    for word in range(number >> 6, (number + count + 63) >> 6):
        empty_word(M, warp, place, word, part_of(number, count, word), due, value, views, t)


def empty_word(M: State, warp: int, place: int, word: int, part: int, due: int, value: int, views: int, t: int) -> None:
    """Do so for registers of one word."""
    sm, later, at = M[warp + W_SM], M[H_DELAY], place_bits(M, warp, place) + word
    what, own = place << WHAT_PLACE_SHIFT, 1 << own_place(M, warp)
    if later == 0 or views == own:
        send(M, sm, at, part, what | views, value, due, t)
        return
    send(M, sm, at, part, what | own, value, due, t)
    send(M, sm, at, part, what | (views & ~own), value, due + later, t)


def change_written(M: State, P: Program, warp: int, fiber: int, due: int, value: int, t: int) -> None:
    """Set or clear E of the destination of an instruction."""
    tests = P[fiber + Y_TESTS]
    first = fiber + Y_TEST + 2 * ((tests & 255) + ((tests >> TESTS_BITS) & 255))
    end = first + 2 * (tests >> 2 * TESTS_BITS)
    M[H_BITS_SET if value else H_BITS_CLEARED] += count_of(P[fiber + Y_DST])
    if P[fiber + Y_FLAGS] & FLAG_PLAIN:
        change_plain(M, P, warp, first, end, due, value, P[fiber + Y_FLAGS] & FLAG_PRIVATE, t)
        return
    views = views_of(M, warp, P[fiber + Y_FLAGS] & FLAG_LOCAL)
    for test in range(first, end, 2):
        word = P[test] >> TEST_BASE_BITS
        empty_word(M, warp, own_place(M, warp), word, P[test + 1], due, value, views, t)


def change_plain(
    M: State, P: Program, warp: int, first: int, end: int, due: int, value: int, alone: int, t: int
) -> None:
    """Do so for registers whose E nobody else changes, word by word of the tests from `first` to `end`."""
    sub, view = M[warp + W_SUB], M[warp + W_VIEW_OWN]
    for test in range(first, end, 2):
        word, part = view + (P[test] >> TEST_BASE_BITS), P[test + 1]
        if value != 0:
            set_plain(M, sub, word, part, alone, t)
        else:
            clear_plain(M, sub, word, part, due, alone, t)


def change_full(M: State, warp: int, group: int, due: int, value: int, parts: int, t: int) -> None:
    """Set or clear parts of F of a group, caused by the weft for cycle `due`."""
    number, count, place = number_of(group), count_of(group), place_of(M, warp, group)
    M[H_BITS_SET if value else H_BITS_CLEARED] += count
    what = parts << ROW_FULL | place << WHAT_PLACE_SHIFT
    if place != own_place(M, warp):
        due += M[H_DELAY]
    for word in range(number >> 6, (number + count + 63) >> 6):
        at = place_bits(M, warp, place) + word
        send(M, M[warp + W_SM], at, part_of(number, count, word), what, value, due, t)


def views_of(M: State, warp: int, local: int) -> int:
    """Return the views of E of a weft's own registers that an instruction may test."""
    return 1 << own_place(M, warp) if local else ALL_VIEWS


def begin_bits(M: State, P: Program, warp: int, fiber: int, t: int) -> None:
    """Change what an issue in cycle t changes."""
    dst, bound = P[fiber + Y_DST], P[fiber + Y_BIND]
    if dst != 0:
        change_written(M, P, warp, fiber, t + 1, 1, t)
        if bound & BIND_HOLD:
            change_full(M, warp, dst, t + 1, 1, bound >> BIND_READERS_SHIFT, t)
    if bound & BIND_CONSUME:
        own = 1 << own_place(M, warp)
        for slot in range(BIND_SLOTS):
            if (bound >> slot) & 1:
                one = (bound >> BIND_SCOPED_SHIFT | P[fiber + Y_LOCAL_SLOTS]) >> slot
                views = own if one & 1 else ALL_VIEWS
                change_empty(M, warp, P[fiber + Y_SOURCE + slot], t + 1, 1, views, t)
    if M[H_PAPER] != 0:
        change_sources(M, P, warp, fiber, t + 1, 1, 1 << ANYBODY, t)


def change_sources(M: State, P: Program, warp: int, fiber: int, due: int, value: int, parts: int, t: int) -> None:
    """Change F of all sources of an instruction, as the paper's bits do."""
    for slot in range(P[fiber + Y_SOURCES]):
        if P[fiber + Y_SOURCE + slot] != 0:
            change_full(M, warp, P[fiber + Y_SOURCE + slot], due, value, parts, t)
    if P[fiber + Y_ACCUMULATOR] != 0:
        change_full(M, warp, P[fiber + Y_ACCUMULATOR], due, value, parts, t)


def consume_bits(M: State, P: Program, warp: int, fiber: int, read: int, t: int) -> None:
    """Change what the consumption in cycle `read` changes, decided in cycle t."""
    bound = P[fiber + Y_BIND]
    if bound & BIND_CONSUME:
        own = 1 << own_place(M, warp)
        for slot in range(BIND_SLOTS):
            if (bound >> slot) & 1:
                parts = own if (bound >> BIND_SCOPED_SHIFT + slot) & 1 else ALL_PARTS
                change_full(M, warp, P[fiber + Y_SOURCE + slot], read, 0, parts, t)
    if M[H_PAPER] != 0:
        change_sources(M, P, warp, fiber, read, 0, ALL_PARTS, t)


def note_end(M: State, P: Program, warp: int, fiber: int, read: int, written: int) -> None:
    """Note until when an operation is in flight on the FIBER-thread's registers, and on its pool."""
    cta, flags = M[warp + W_CTA], P[fiber + Y_FLAGS]
    rest = read if flags & FLAG_READS else 0
    if P[fiber + Y_DST] != 0:
        rest = max(rest, written)
    M[cta + C_REST] = max(M[cta + C_REST], rest)
    if flags & (FLAG_READS_POOL | FLAG_WRITES_POOL):
        rest = written if flags & FLAG_WRITES_POOL else 0
        if flags & FLAG_READS_POOL:
            rest = max(rest, read)
        M[cta + C_POOL_REST] = max(M[cta + C_POOL_REST], rest + M[H_DELAY])


def issue_bits(M: State, P: Program, warp: int, fiber: int, t: int, read: int, written: int) -> None:
    """Change all bits of an instruction whose operands are read, and result written, in cycles known at its issue."""
    read = max(read, t + 1)
    written = max(written, read)
    begin_bits(M, P, warp, fiber, t)
    consume_bits(M, P, warp, fiber, read, t)
    if P[fiber + Y_DST] != 0:
        change_written(M, P, warp, fiber, written, 0, t)
    note_end(M, P, warp, fiber, read, written)


def issue_simple(M: State, P: Program, warp: int, fiber: int, t: int, read: int, written: int) -> None:
    """Do so for an instruction that changes E of its destination alone, which nobody else changes."""
    tests, count = P[fiber + Y_TESTS], count_of(P[fiber + Y_DST])
    test = fiber + Y_TEST + 2 * ((tests & 255) + ((tests >> TESTS_BITS) & 255))
    end = test + 2 * (tests >> 2 * TESTS_BITS)
    M[H_BITS_SET] += count
    M[H_BITS_CLEARED] += count
    sub, view, flags = M[warp + W_SUB], M[warp + W_VIEW_OWN], P[fiber + Y_FLAGS]
    while test < end:
        word, part = view + (P[test] >> TEST_BASE_BITS), P[test + 1]
        set_plain(M, sub, word, part, flags & FLAG_PRIVATE, t)
        clear_plain(M, sub, word, part, written, flags & FLAG_PRIVATE, t)
        test += 2
    cta = M[warp + W_CTA]
    if count != 0 or flags & FLAG_READS:
        M[cta + C_REST] = max(M[cta + C_REST], written if count != 0 else read)
    if flags & (FLAG_READS_POOL | FLAG_WRITES_POOL):
        rest = (written if flags & FLAG_WRITES_POOL else read) + M[H_DELAY]
        M[cta + C_POOL_REST] = max(M[cta + C_POOL_REST], rest)


def issue_bit(M: State, P: Program, warp: int, fiber: int, t: int) -> None:
    """DEPBAR.BIT: set or clear one bit of a group."""
    group, what = P[fiber + Y_SOURCE], P[fiber + Y_BIND]
    value = what & CHANGE_SET
    if what & CHANGE_FULL == 0:
        change_empty(M, warp, group, t + 1, value, ALL_VIEWS, t)
    else:
        change_full(M, warp, group, t + 1, value, 1 << ANYBODY if value else ALL_PARTS, t)
    if P[fiber + Y_FLAGS] & FLAG_READS_POOL:
        cta = M[warp + W_CTA]
        M[cta + C_POOL_REST] = max(M[cta + C_POOL_REST], t + 1 + M[H_DELAY])
