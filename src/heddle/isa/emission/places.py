"""Vector registers of rows as register fields of words, and back.

Without places a register field is relative to the base of the weft's role. In an instruction with X every source is
absolute: a register of a subpartition, or of the weft's own. Rows say `own` of pool registers and nothing of private
ones; which is which follows from the pool's range in the FIBER note.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import OWN, TENSOR, FiberNote
from heddle.isa.emission.control import has_cache_bits
from heddle.isa.emission.form import SLOT_BITS, Form, Slot
from heddle.isa.instruction import Place
from heddle.isa.layouts import Flags, Layout
from heddle.isa.words import get_bits, put_bits

REUSE_BITS = {"a": 122, "b": 123, "c": 124}
LAST_INDEX = 511
FIELD_BITS = 8


@dataclass(frozen=True, slots=True)
class Window:
    """What registers of one row are relative to: its role's base, None if roles with several run it; and the pool."""

    base: int | None
    pool: FiberNote | None
    layout: Layout

    def in_pool(self, index: int) -> bool:
        """Tell whether a register of the weft's subpartition belongs to the pool."""
        return self.pool is not None and self.pool.pool_first <= index < self.pool.pool_limit

    def known_base(self) -> int:
        """Return the base. Raises UserError where it depends on the role."""
        if self.base is None:
            raise UserError("roles with different bases run one instruction with a register of a place")
        return self.base


def is_remote(row: Instruction, form: Form) -> bool:
    """Tell whether a row is an instruction with X: a source has a place."""
    return not form.own_fiber_bits and any(register.place not in (None, TENSOR) for register in row.src)


def put_destination(word: int, register: Register, window: Window) -> int:
    """Return the word with its destination, a register of the weft's own subpartition. Raises UserError."""
    if register.place not in (None, OWN):
        raise UserError(f"the destination R{register.index} lies in subpartition {register.place}; it must be local")
    index = register.index
    if register.place == OWN:
        index -= window.known_base()
    if not 0 <= index < RZ:
        raise UserError(f"the destination R{register.index} is out of its role's window of {RZ} registers")
    if window.pool is not None:
        _check_place(register, window)
    return put_bits(word, *SLOT_BITS["d"], index)


def get_destination(word: int, slot: Slot, count: int, window: Window) -> Register:
    """Return the destination of a word."""
    index = get_bits(word, *SLOT_BITS[slot.field])
    if window.base is not None and window.in_pool(window.base + index):
        return Register(window.base + index, count, place=OWN)
    return Register(index, count)


def put_source(word: int, register: Register, slot: Slot, remote: bool, window: Window, cached: str) -> int:
    """Return the word with a source in its slot; `cached`: slots with operand cache bits. Raises UserError."""
    high, low = SLOT_BITS[slot.field]
    if register.reuse and register.place not in (None, OWN):
        raise UserError(f"R{register.index} of subpartition {register.place} has no operand cache bit")
    if register.reuse and slot.field in cached:
        word |= 1 << REUSE_BITS[slot.field]
    if register.index == RZ and register.count == 1 and register.place is None:
        return put_bits(word, high, low, RZ)
    if not remote:
        return put_bits(word, high, low, register.index)
    if slot.field == "s":
        raise UserError(f"R{register.index} is a source in the field of the destination, which has no place")
    index = register.index + (window.known_base() if register.place is None else 0)
    if index == RZ or index > LAST_INDEX:
        raise UserError(f"no source can name register {index} of a subpartition; allowed: 0 to {LAST_INDEX}, not {RZ}")
    if register.place in (None, OWN):
        _check_place(register, window)
    place: Place = "own" if register.place in (None, OWN) else register.place
    word |= window.layout.write(slot.field.upper(), index, place, Flags())
    return put_bits(word, high, low, index & RZ)


def get_source(word: int, slot: Slot, count: int, window: Window) -> Register:
    """Return the source in a slot of a word."""
    index = get_bits(word, *SLOT_BITS[slot.field])
    reuse = slot.field in REUSE_BITS and has_cache_bits(word) and bool(word >> REUSE_BITS[slot.field] & 1)
    if not word >> window.layout.remote & 1 or slot.field == "s":
        return Register(index, 1 if index == RZ else count, reuse)
    index, place = window.layout.read(word, slot.field.upper(), index, Flags())
    if index == RZ:
        return Register(RZ, 1, reuse)
    if place != "own":
        return Register(index, count, reuse, place)
    if window.in_pool(index):
        return Register(index, count, reuse, OWN)
    return Register(index - window.known_base(), count, reuse)


def _check_place(register: Register, window: Window) -> None:
    """Raise UserError where the pool's range does not tell whether a row says `own`."""
    base = 0 if register.place == OWN else window.base
    if base is None or window.in_pool(base + register.index) != (register.place == OWN):
        pool = window.pool
        span = f"{pool.pool_first} to {pool.pool_limit - 1}" if pool and pool.pool_limit else "no registers"
        said = "own" if register.place == OWN else "no place"
        raise UserError(f"R{register.index} has {said}, but the pool is {span}: words cannot tell")
