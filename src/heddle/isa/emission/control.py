"""The control field, the guard and the fields of values in words."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.warp import SCOREBOARDS, Control, Instruction
from heddle.isa.words import get_bits, put_bits

NO_BARRIER = 7
CACHING_BIT = 109
"""1 in most of NVIDIA's code (no yield); with 0 there are no operand cache bits."""
LAST_CACHING_STALL = 11
"""Longer stalls exist with bit 109 = 0 only."""
STALLS = 16
GUARDS = {"warp": 7, "group": 4, "role": 5}
"""Guard predicates: PT; P4 is true in one warp of each four, P5 in the first warp of the role."""


def put_control(word: int, control: Control) -> int:
    """Return the word with its control field. Raises UserError for a stall count or a counter that it cannot hold."""
    if not 0 <= control.stall < STALLS:
        raise UserError(f"a stall of {control.stall} cycles; allowed: 0 to {STALLS - 1}")
    word = put_bits(word, 108, 105, control.stall) | (control.stall <= LAST_CACHING_STALL) << CACHING_BIT
    word = put_bits(word, 112, 110, _counter(control.write_barrier))
    word = put_bits(word, 115, 113, _counter(control.read_barrier))
    return put_bits(word, 121, 116, sum(1 << _counter(k) for k in control.wait))


def has_cache_bits(word: int) -> bool:
    """Tell whether bits 124:122 are operand cache bits: with bit 109 = 0 they mean something else."""
    return bool(word >> CACHING_BIT & 1)


def _counter(k: int | None) -> int:
    if k is not None and not 0 <= k < SCOREBOARDS:
        raise UserError(f"dependence counter {k}; allowed: 0 to {SCOREBOARDS - 1}")
    return NO_BARRIER if k is None else k


def get_control(word: int) -> Control:
    """Return the control field of a word. Raises UserError for a counter that does not exist."""
    barriers = [get_bits(word, 112, 110), get_bits(word, 115, 113)]
    if any(SCOREBOARDS <= barrier < NO_BARRIER for barrier in barriers):
        raise UserError(f"dependence counters {barriers}; allowed: 0 to {SCOREBOARDS - 1}, {NO_BARRIER} for none")
    write, read = (None if barrier == NO_BARRIER else barrier for barrier in barriers)
    mask = get_bits(word, 121, 116)
    return Control(
        stall=get_bits(word, 108, 105),
        wait=frozenset(k for k in range(SCOREBOARDS) if mask >> k & 1),
        write_barrier=write,
        read_barrier=read,
    )


def put_guard(word: int, row: Instruction) -> int:
    """Return the word with the guard of whoever acts."""
    return put_bits(word, 15, 12, GUARDS[row.by])


def get_guard(word: int) -> str:
    """Return who acts. Raises UserError for a guard that no row has."""
    names = {guard: name for name, guard in GUARDS.items()}
    guard = get_bits(word, 15, 12)
    if guard not in names:
        raise UserError(f"guard {guard:#x}; rows have {', '.join(f'{g:#x} ({n})' for g, n in names.items())}")
    return names[guard]
