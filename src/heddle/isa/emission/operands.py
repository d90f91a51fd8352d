"""Operands of rows in words and back: vector registers in slots, tensor memory as columns, accumulators.

An accumulator that a row does not name as a source is its destination; in words slot C says it always.
"""

from __future__ import annotations

from typing import Any

from heddle.errors import UserError
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import TENSOR
from heddle.isa.emission.control import has_cache_bits
from heddle.isa.emission.form import SLOT_BITS, Form, Slot
from heddle.isa.emission.places import Window, get_destination, get_source, is_remote, put_destination, put_source
from heddle.isa.words import get_bits, put_bits

TENSOR_COLUMNS = "columns"
"""The field of forms that address tensor memory by a column."""
DESTINATION = "d"


def put_operands(word: int, row: Instruction, form: Form, window: Window) -> int:
    """Return the word with the registers of a row. Raises UserError for what slots cannot name."""
    remote = is_remote(row, form)
    cached = form.cached if has_cache_bits(word) else ""
    word |= remote << window.layout.remote
    if row.dst is not None and form.dst is not None:
        word = (
            _put_tensor(word, form, row.dst, DESTINATION) if form.dst.tensor else put_destination(word, row.dst, window)
        )
    for register, slot in _sources(row, form):
        if slot.tensor:
            word = _put_tensor(word, form, register, slot.field)
        else:
            word = put_source(word, register, slot, remote, window, cached)
    return word


def _sources(row: Instruction, form: Form) -> list[tuple[Register, Slot]]:
    sources = list(zip(row.src, form.src, strict=False))
    if form.accumulator is not None:
        read = row.src[len(form.src)] if len(row.src) > len(form.src) else row.dst
        if read is None:
            raise UserError("a matrix instruction without a destination")
        sources.append((read, form.accumulator))
    return sources


def _put_tensor(word: int, form: Form, register: Register, slot: str) -> int:
    """Return the word with groups of 32 columns of tensor memory: as a column, or as a group in a slot."""
    if TENSOR_COLUMNS in form.fields:
        return form.fields[TENSOR_COLUMNS].put(word, register.index, "group of columns of tensor memory")
    return put_bits(word, *SLOT_BITS[slot], register.index if register.place == TENSOR else RZ)


def get_operands(word: int, form: Form, columns: int, window: Window) -> dict[str, Any]:
    """Return `dst` and `src` of a row; `columns`: n of the shape, which says how many registers operands have."""
    found: dict[str, Any] = {}
    if form.dst is not None:
        count = form.dst.registers(columns)
        found["dst"] = (
            _get_tensor(word, form, count, DESTINATION)
            if form.dst.tensor
            else get_destination(word, form.dst, count, window)
        )
    sources = [_get_source(word, form, slot, columns, window) for slot in form.src]
    if form.accumulator is not None:
        read = _get_source(word, form, form.accumulator, columns, window)
        if read != found["dst"]:
            sources.append(read)
    found["src"] = tuple(sources)
    return found


def _get_source(word: int, form: Form, slot: Slot, columns: int, window: Window) -> Register:
    count = slot.registers(columns)
    if slot.tensor:
        return _get_tensor(word, form, count, slot.field)
    return get_source(word, slot, count, window)


def _get_tensor(word: int, form: Form, count: int, slot: str) -> Register:
    if TENSOR_COLUMNS in form.fields:
        return Register(form.fields[TENSOR_COLUMNS].get(word), count, place=TENSOR)
    index = get_bits(word, *SLOT_BITS[slot])
    return Register(RZ) if index == RZ else Register(index, count, place=TENSOR)
