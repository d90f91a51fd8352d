"""How values of fields are written: registers, hexadecimal numbers, and floats as nvdisasm prints them."""

from __future__ import annotations

import math
import struct

import numpy as np

from heddle.isa.form import Field, width_of
from heddle.isa.instruction import Kind

_REGISTER_NAMES = {
    Kind.GPR: ("R", "RZ"), Kind.UNIFORM: ("UR", "URZ"), Kind.PREDICATE: ("P", "PT"),
    Kind.UNIFORM_PREDICATE: ("UP", "UPT"), Kind.BARRIER: ("B", ""), Kind.SCOREBOARD: ("SB", ""),
    Kind.WGMMA_BARRIER: ("gsb", ""),
}  # fmt: skip
_FLOAT_FORMATS = {Kind.FLOAT32: ("<I", "<f"), Kind.FLOAT16: ("<H", "<e")}
_FLOAT_DIGITS = 20
_LONG_FLOATS = 1e9  # from here on 20 digits after the point are printed, zeros too
REGISTERS = 512  # of a subpartition
FLOAT_KINDS = (Kind.FLOAT32, Kind.FLOAT16, Kind.BFLOAT16, Kind.FLOAT64_HIGH)


def value_text(field: Field, value: int, zero: int | None) -> str:
    """Return the text of a field's value; `zero` is the index of RZ, URZ, PT or UPT."""
    if field.kind in _REGISTER_NAMES:
        prefix, zero_name = _REGISTER_NAMES[field.kind]
        return zero_name if value == zero and zero_name else f"{prefix}{value}"
    if field.kind == Kind.FIBER_REGISTER:
        return f"R{value % REGISTERS}@{value // REGISTERS}"
    if field.kind == Kind.FIBER_OWN:
        return f"R{value}@own"
    if field.kind in FLOAT_KINDS:
        return float_text(field.kind, value)
    return f"{value:#x}"


def float_of(kind: Kind, bits: int) -> float:
    """Return the number that the bits of a float field stand for."""
    if kind == Kind.BFLOAT16:
        return float_of(Kind.FLOAT32, bits << 16)
    if kind == Kind.FLOAT64_HIGH:
        return float(struct.unpack("<d", struct.pack("<Q", bits << 32))[0])
    packed, unpacked = _FLOAT_FORMATS[kind]
    return float(struct.unpack(unpacked, struct.pack(packed, bits))[0])


_MANTISSA_BITS = {Kind.FLOAT32: 23, Kind.FLOAT16: 10, Kind.BFLOAT16: 7, Kind.FLOAT64_HIGH: 20}
_WIDTHS = {Kind.FLOAT32: 32, Kind.FLOAT16: 16, Kind.BFLOAT16: 16, Kind.FLOAT64_HIGH: 32}


def float_text(kind: Kind, bits: int) -> str:
    """Return a float as nvdisasm prints it: 20 digits, one more of large numbers, -0.0, +INF, -QNAN, +SNAN."""
    sign = "-" if bits >> _WIDTHS[kind] - 1 else "+"
    number = float_of(kind, bits)
    if math.isinf(number):
        return sign + "INF"
    if math.isnan(number):
        quiet = bits >> _MANTISSA_BITS[kind] - 1 & 1
        return sign + ("QNAN" if quiet else "SNAN")
    if number == 0 and sign == "-":
        return "-0.0"
    return format(number, f".{_FLOAT_DIGITS}{'e' if abs(number) >= _LONG_FLOATS else 'g'}")


def float_bits(kind: Kind, text: str) -> int | None:
    """Return the bits of a printed float, None if the text is none; of NaNs the one without payload."""
    width, mantissa = _WIDTHS[kind], _MANTISSA_BITS[kind]
    sign = text.startswith("-") << width - 1
    exponent = (1 << width - 1 - mantissa) - 1 << mantissa
    special = {"INF": 0, "QNAN": 1 << mantissa - 1, "SNAN": 1}
    if (name := text[1:]) in special and text[0] in "+-":
        return sign | exponent | special[name]
    try:
        number = float(text)
    except ValueError:
        return None
    if kind == Kind.FLOAT64_HIGH:
        return int(struct.unpack("<Q", struct.pack("<d", number))[0]) >> 32
    if kind == Kind.FLOAT16:
        return int(np.float16(number).view(np.uint16))
    single = int(np.float32(number).view(np.uint32))
    return single >> 16 if kind == Kind.BFLOAT16 else single


def is_register(kind: Kind) -> bool:
    """Return whether fields of this kind are written as a letter and a number."""
    return kind in _REGISTER_NAMES


def register_prefix(kind: Kind) -> str:
    """Return the letters of a register kind."""
    return _REGISTER_NAMES[kind][0]


def register_index(field: Field, text: str) -> int | None:
    """Return the number of a register's text, None if it is none of this kind or too high."""
    prefix, zero_name = _REGISTER_NAMES[field.kind]
    largest = (1 << width_of(field.bits)) - 1
    if zero_name and text == zero_name:
        return 7 if field.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE) else largest
    digits = text.removeprefix(prefix)
    if not text.startswith(prefix) or not digits.isdecimal() or not digits.isascii():
        return None
    return int(digits)
