"""What the issue, consumption and write-back of an instruction do to full and empty bits (fiber.md, section 3)."""

from __future__ import annotations

from heddle.sim.core.busy_bits import add_change, empty_change, full_change
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import C_POOL_REST, C_REST, Q_INDEX, W_CTA, W_SM, W_SUB
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
    H_BITS_CLEARED,
    H_BITS_SET,
    H_DELAY,
    H_PAPER,
    R_WORDS,
    Y_ACCUMULATOR,
    Y_BIND,
    Y_DST,
    Y_SOURCE,
    Y_SOURCES,
)
from heddle.sim.core.registers import count_of, first_of, in_pool, place_of


def change_empty(M: State, warp: int, group: int, due: int, value: int, mask: int, look: int) -> None:
    """Set or clear E of a group, seen from cycle `due` on in the weft's subpartition."""
    origin, sm = M[M[warp + W_SUB] + Q_INDEX], M[warp + W_SM]
    change = empty_change(M, due, value, origin, mask)
    first = first_of(M, warp, group)
    for i in range(count_of(group)):
        add_change(M, first + i * R_WORDS, change, sm, look)
    M[H_BITS_SET if value else H_BITS_CLEARED] += count_of(group)


def change_full(M: State, warp: int, group: int, due: int, value: int, parts: int, look: int) -> None:
    """Set or clear parts of F of a group, caused by the weft for cycle `due`."""
    origin, sm = M[M[warp + W_SUB] + Q_INDEX], M[warp + W_SM]
    change = full_change(M, due, value, origin, place_of(M, warp, group), parts)
    first = first_of(M, warp, group)
    for i in range(count_of(group)):
        add_change(M, first + i * R_WORDS, change, sm, look)
    M[H_BITS_SET if value else H_BITS_CLEARED] += count_of(group)


def begin_bits(M: State, P: Program, warp: int, fiber: int, t: int) -> None:
    """Change what an issue in cycle t changes."""
    dst, bound = P[fiber + Y_DST], P[fiber + Y_BIND]
    if dst != 0:
        change_empty(M, warp, dst, t + 1, 1, ALL_VIEWS, t + 1)
        if bound & BIND_HOLD:
            change_full(M, warp, dst, t + 1, 1, bound >> BIND_READERS_SHIFT, t + 1)
    if bound & BIND_CONSUME:
        own = 1 << M[M[warp + W_SUB] + Q_INDEX]
        for slot in range(BIND_SLOTS):
            if (bound >> slot) & 1:
                mask = own if (bound >> BIND_SCOPED_SHIFT + slot) & 1 else ALL_VIEWS
                change_empty(M, warp, P[fiber + Y_SOURCE + slot], t + 1, 1, mask, t + 1)
    if M[H_PAPER] != 0:
        for slot in range(P[fiber + Y_SOURCES]):
            change_full(M, warp, P[fiber + Y_SOURCE + slot], t + 1, 1, 1 << ANYBODY, t + 1)
        change_full(M, warp, P[fiber + Y_ACCUMULATOR], t + 1, 1, 1 << ANYBODY, t + 1)


def consume_bits(M: State, P: Program, warp: int, fiber: int, read: int, t: int) -> None:
    """Change what the consumption in cycle `read` changes, decided in cycle t."""
    bound = P[fiber + Y_BIND]
    if bound & BIND_CONSUME:
        own = 1 << M[M[warp + W_SUB] + Q_INDEX]
        for slot in range(BIND_SLOTS):
            if (bound >> slot) & 1:
                parts = own if (bound >> BIND_SCOPED_SHIFT + slot) & 1 else ALL_PARTS
                change_full(M, warp, P[fiber + Y_SOURCE + slot], read, 0, parts, t + 1)
    if M[H_PAPER] != 0:
        for slot in range(P[fiber + Y_SOURCES]):
            change_full(M, warp, P[fiber + Y_SOURCE + slot], read, 0, ALL_PARTS, t + 1)
        change_full(M, warp, P[fiber + Y_ACCUMULATOR], read, 0, ALL_PARTS, t + 1)


def has_sources(P: Program, fiber: int) -> bool:
    """Tell whether an instruction has a source that is a register."""
    for slot in range(P[fiber + Y_SOURCES]):
        if P[fiber + Y_SOURCE + slot] != 0:
            return True
    return bool(P[fiber + Y_ACCUMULATOR] != 0)


def reads_pool(M: State, P: Program, warp: int, fiber: int) -> bool:
    """Tell whether a source is in the pool."""
    for slot in range(P[fiber + Y_SOURCES]):
        group = P[fiber + Y_SOURCE + slot]
        if group != 0 and in_pool(M, warp, group):
            return True
    group = P[fiber + Y_ACCUMULATOR]
    return bool(group != 0 and in_pool(M, warp, group))


def note_end(M: State, P: Program, warp: int, fiber: int, read: int, written: int) -> None:
    """Note until when an operation is in flight on the FIBER-thread's registers, and on its pool."""
    cta, dst = M[warp + W_CTA], P[fiber + Y_DST]
    if has_sources(P, fiber):
        M[cta + C_REST] = max(M[cta + C_REST], read)
    if dst != 0:
        M[cta + C_REST] = max(M[cta + C_REST], written)
    if reads_pool(M, P, warp, fiber):
        M[cta + C_POOL_REST] = max(M[cta + C_POOL_REST], read + M[H_DELAY])
    if dst != 0 and in_pool(M, warp, dst):
        M[cta + C_POOL_REST] = max(M[cta + C_POOL_REST], written + M[H_DELAY])


def issue_bits(M: State, P: Program, warp: int, fiber: int, t: int, read: int, written: int) -> None:
    """Change all bits of an instruction whose operands are read, and result written, in cycles known at its issue."""
    read = max(read, t + 1)
    written = max(written, read)
    begin_bits(M, P, warp, fiber, t)
    consume_bits(M, P, warp, fiber, read, t)
    if P[fiber + Y_DST] != 0:
        change_empty(M, warp, P[fiber + Y_DST], written, 0, ALL_VIEWS, t + 1)
    note_end(M, P, warp, fiber, read, written)


def issue_bit(M: State, P: Program, warp: int, fiber: int, t: int) -> None:
    """DEPBAR.BIT: set or clear one bit of a group."""
    group, what = P[fiber + Y_SOURCE], P[fiber + Y_BIND]
    value = what & CHANGE_SET
    if what & CHANGE_FULL == 0:
        change_empty(M, warp, group, t + 1, value, ALL_VIEWS, t + 1)
    else:
        change_full(M, warp, group, t + 1, value, 1 << ANYBODY if value else ALL_PARTS, t + 1)
    if in_pool(M, warp, group):
        cta = M[warp + W_CTA]
        M[cta + C_POOL_REST] = max(M[cta + C_POOL_REST], t + 1 + M[H_DELAY])
