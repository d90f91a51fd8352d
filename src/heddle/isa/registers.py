"""Register operands of a whole program as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from heddle.isa.assemble import flags_of
from heddle.isa.disassemble import zero_register
from heddle.isa.form import Bits, Field, Form
from heddle.isa.instruction import LETTERS, REGISTER_KINDS, Kind
from heddle.isa.words import Words, get

if TYPE_CHECKING:
    from heddle.isa.codec import Decoded
    from heddle.isa.table import Table

GUARD_LETTER = ord("G")
_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Registers:
    """Register fields, arrays of shape (instructions, fields). `count` is 0 where there is no such field, or RZ or PT.

    `kind` is an `instruction.Kind`; registers first..first+count-1. `letter` is the code of the slot's letter A-D
    ("G": the guard, 0: none). Places of remote sources are 0-3, 4 for the weft's own, -1 for none.
    """

    kind: NDArray[np.uint8]
    first: NDArray[np.int16]
    count: NDArray[np.int16]
    letter: NDArray[np.uint8]
    place: NDArray[np.int8]
    used: NDArray[np.bool_]
    defined: NDArray[np.bool_]

    def only(self, mask: NDArray[np.bool_]) -> Registers:
        """Return these fields with a count of 0 outside the mask."""
        count = np.where(mask, self.count, np.int16(0))
        return Registers(self.kind, self.first, count, self.letter, self.place, self.used & mask, self.defined & mask)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Register fields of all forms of a table, arrays of shape (forms + 1, fields); the last row is for raw words."""

    kind: NDArray[np.uint8]
    low: NDArray[np.uint8]
    mask: NDArray[np.uint64]
    zero: NDArray[np.int16]
    count: NDArray[np.int16]
    letter: NDArray[np.uint8]
    used: NDArray[np.bool_]
    defined: NDArray[np.bool_]
    complement: NDArray[np.bool_]


def register_arrays(decoded: Decoded) -> Registers:
    """Return the register fields of all instructions, the guard as the last one."""
    columns = _columns(decoded.table)
    form = decoded.form  # -1 takes the last row
    low, high = decoded.words[:, :1], decoded.words[:, 1:]
    position = columns.low[form].astype(np.uint64)
    half = np.uint64(64)
    value = np.where(position < half, low >> (position & np.uint64(63)), high >> (position & np.uint64(63)))
    first = (value & columns.mask[form]).astype(np.int16)
    first = np.where(columns.complement[form], 7 - first, first)
    kind, letter = columns.kind[form], columns.letter[form]
    first, place = _places(decoded, first, kind, letter)
    count = np.where(first == columns.zero[form], np.int16(0), columns.count[form])
    _counts_by_modifiers(decoded, count)
    guard = decoded.guard
    uniform = np.array([*(form.uniform_guard for form in decoded.table.forms), False])[form]
    kinds = np.where(uniform, np.uint8(Kind.UNIFORM_PREDICATE), np.uint8(Kind.PREDICATE))
    one = np.ones(len(decoded), bool)

    return Registers(
        _with_column(kind, kinds), _with_column(first, guard), _with_column(count, guard != 7),
        _with_column(letter, one * GUARD_LETTER), _with_column(place, -1 * one), _with_column(columns.used[form], one),
        _with_column(columns.defined[form], ~one),
    )  # fmt: skip


def _with_column(array: NDArray[_T], column: NDArray[Any]) -> NDArray[_T]:
    return np.concatenate([array, column[:, None].astype(array.dtype)], axis=1)


def _places(
    decoded: Decoded, first: NDArray[np.int16], kind: NDArray[np.uint8], letter: NDArray[np.uint8]
) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """Return indices of up to 9 bits and places, where X is set."""
    place = np.full(first.shape, -1, np.int8)
    own = np.array([*(form.own_fiber_bits for form in decoded.table.forms), True])[decoded.form]
    rows = np.flatnonzero((get(decoded.words, decoded.layout.remote, decoded.layout.remote) != 0) & ~own)
    if not len(rows):
        return first, place
    words = decoded.words[rows]
    always_own = np.array([*("A" in flags_of(form).always_own for form in decoded.table.forms), False])
    with_d = (letter[rows] == ord("D")).any(axis=1)
    first = first.copy()
    for name in LETTERS.values():
        layout = decoded.layout
        where = letter[rows] == ord(name)
        high = get(words, layout.high[name], layout.high[name]).astype(np.int16) << 8
        selector = get(words, layout.selector[name] + 1, layout.selector[name]).astype(np.int8)
        if name in layout.local:
            local = (get(words, layout.local[name], layout.local[name]) != 0) & ~with_d
            selector = np.where(local, np.int8(4), selector)
        selector = np.where(always_own[decoded.form[rows]] & (name == "A"), np.int8(4), selector)
        first[rows] += np.where(where, high[:, None], np.int16(0))
        place[rows] = np.where(where & (first[rows] != 255), selector[:, None], place[rows])
    return first, place


def _counts_by_modifiers(decoded: Decoded, count: NDArray[np.int16]) -> None:
    """Set counts that depend on modifier bits, form by form."""
    order = np.argsort(decoded.form, kind="stable")
    sorted_forms = decoded.form[order]
    for number, column, bits, counts in _by_modifiers(decoded.table):
        start, end = np.searchsorted(sorted_forms, [number, number + 1])
        if start == end:
            continue
        rows = order[start:end]
        value = _gather(decoded.words[rows], bits)
        count[rows, column] = np.where(count[rows, column] > 0, counts[value], 0)


def _gather(words: Words, bits: Bits) -> NDArray[np.intp]:
    value = np.zeros(len(words), np.uint64)
    for high, low in bits:
        value = value << np.uint64(high - low + 1) | get(words, high, low)
    return value.astype(np.intp)


@lru_cache
def _by_modifiers(table: Table) -> list[tuple[int, int, Bits, NDArray[np.int16]]]:
    found = []
    for number, form in enumerate(table.forms):
        for column, field in enumerate(_register_fields(form)):
            if field.count_by:
                counts = np.array(field.count_by.counts, np.int16)
                found.append((number, column, field.count_by.bits, counts))
    return found


def _register_fields(form: Form) -> list[Field]:
    return [field for field in form.fields if field.kind in REGISTER_KINDS]


@lru_cache
def _columns(table: Table) -> _Columns:
    rows, width = len(table.forms) + 1, max((len(_register_fields(form)) for form in table.forms), default=0)
    shape = (rows, width)
    columns = _Columns(
        *(np.zeros(shape, dtype) for dtype in (np.uint8, np.uint8, np.uint64, np.int16, np.int16, np.uint8)),
        *(np.zeros(shape, bool) for _ in range(3)),
    )
    for row, form in enumerate(table.forms):
        for column, field in enumerate(_register_fields(form)):
            ((high, low),) = field.bits[-1:]
            width = min(high - low + 1, 3) if field.kind in REGISTER_KINDS[2:] else high - low + 1
            columns.kind[row, column] = field.kind
            columns.low[row, column] = low
            columns.mask[row, column] = (1 << width) - 1
            columns.zero[row, column] = zero_register(field) or -1
            columns.count[row, column] = field.count
            is_source = field.kind == Kind.GPR and not field.definition
            columns.letter[row, column] = ord(LETTERS.get(field.slot, "\0")) if is_source else 0
            columns.used[row, column] = not field.definition or field.update
            columns.defined[row, column] = field.definition
            columns.complement[row, column] = field.complement
    return columns
