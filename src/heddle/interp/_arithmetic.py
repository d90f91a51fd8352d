"""The arithmetic of effects: rounding to element types, matrix products and element-wise functions, in NumPy.

Values are held as float32 that are representable in their object's type, so a matrix product of fp16, bf16 or fp8
operands is exact in its products and accumulates in fp32, like the matrix units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes  # registers bfloat16 and fp8 with NumPy
import numpy as np
from numpy.typing import NDArray

from heddle.errors import SourceLocation, unknown_name
from heddle.ir.tile_math import CODE_COLUMNS, CODE_WEIGHTS, GATE_COLUMNS

Values = NDArray[np.float32]
_TYPES: dict[str, type | None] = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "tf32": None,
    "fp32": None,
    "fp64": None,
    "int32": None,
    "uint8": None,
    "uint16": None,
}
CODE_BITS = 16  # of a code that codebooks share
_TF32_DROPPED_BITS = 13  # of the 23 mantissa bits of fp32
_LOG2_E = np.float32(np.log2(np.e))
_LEAST_EXPONENT = np.float32(-127)  # below it the polynomial's range reduction is clamped

# 2^x on [0, 1), lowest power first: 1 at 0 and the least greatest relative error (8.6e-5), by reweighted least squares
_EXP2_POLYNOMIAL = (np.float32(1), np.float32(0.69511679), np.float32(0.22764497), np.float32(0.07706707))


def rounded(values: NDArray[np.generic], dtype: str) -> Values:
    """Round to the nearest value of `dtype`, as float32; out of range becomes the type's infinity or NaN."""
    if dtype not in _TYPES:
        raise unknown_name("element type", dtype, _TYPES)
    if dtype == "tf32":
        return _to_tf32(values.astype(np.float32))
    kind = _TYPES[dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32) if kind is None else values.astype(kind).astype(np.float32)


def _to_tf32(values: Values) -> Values:
    half, mask = np.uint32(1 << (_TF32_DROPPED_BITS - 1)), np.uint32(0xFFFFFFFF << _TF32_DROPPED_BITS & 0xFFFFFFFF)
    return ((values.view(np.uint32) + half) & mask).view(np.float32)


def matrix_product(a: Values, b: Values) -> Values:
    """Return a @ b.T for a [m, k] and b [n, k]."""
    product: Values = np.matmul(a, b.T)
    return product


def kept_elements(
    rows: NDArray[np.int64], cols: NDArray[np.int64], *, causal: bool, limit: int, diagonal: int, row_divisor: int
) -> NDArray[np.bool_]:
    """Return which elements [rows, cols] a mask keeps, by their positions (the rule is in `heddle.ir.tile.Mask`)."""
    keep = np.ones((rows.size, cols.size), np.bool_)
    if causal:
        keep &= cols[None, :] <= rows[:, None] // row_divisor + diagonal
    if limit:
        keep &= cols[None, :] < limit
    return keep


def _silu(x: Values) -> Values:
    result: Values = x / (np.float32(1) + np.exp2(-x * _LOG2_E))
    return result


def gated(x: Values) -> Values:
    """Return silu(gate) * factor; x [rows, 16 n] has 8 gates and then their 8 factors in turn."""
    pairs = x.reshape(x.shape[0], -1, 2, GATE_COLUMNS)
    result: Values = (_silu(pairs[:, :, 0]) * pairs[:, :, 1]).reshape(x.shape[0], -1)
    return result


def _rotate(x: Values, y: Values) -> Values:
    """Return x * y as complex numbers, of which columns 2i and 2i + 1 are the parts."""
    real, imaginary, cosine, sine = x[:, ::2], x[:, 1::2], y[:, ::2], y[:, 1::2]
    parts = (real * cosine - imaginary * sine, real * sine + imaginary * cosine)
    result: Values = np.stack(parts, axis=2).reshape(x.shape)
    return result


def dequantized(codes: Values, scale: Values, zero: Values) -> Values:
    """Return (weight - zero) * scale [8 r, n] of `codes` [r, 4 n]: eight 4-bit weights of a column in four bytes."""
    octets = codes.astype(np.uint8).reshape(codes.shape[0], -1, CODE_COLUMNS)
    weights = np.stack([octets % 16, octets // 16], axis=3).reshape(codes.shape[0], -1, CODE_WEIGHTS)
    plain = weights.transpose(0, 2, 1).reshape(codes.shape[0] * CODE_WEIGHTS, -1).astype(np.float32)
    result: Values = (plain - zero) * scale
    return result


def looked_up(codes: Values, scale: Values, book: Values, books: int) -> Values:
    """Return the sums of entries [8 r, n] of `book` [entries, 8], times scale; `codes` [r, books n], side by side."""
    rows, entries = codes.shape[0], book.shape[0] // books
    numbers = codes.astype(np.int64).reshape(rows, -1, books) + entries * np.arange(books)
    summed = rounded(book[numbers].sum(axis=2), "fp16")  # [r, n, 8]
    result: Values = summed.transpose(0, 2, 1).reshape(rows * CODE_WEIGHTS, -1) * scale
    return result


def looked_up_rows(codes: Values, book: Values, books: int) -> Values:
    """Return the sums of entries [n, 8 c] by `codes` [n, c] of 16 bits, which `books` codebooks share, lowest first."""
    entries, bits = book.shape[0] // books, CODE_BITS // books
    whole = codes.astype(np.int64)
    numbers = np.stack([(whole >> bits * i) % (1 << bits) + entries * i for i in range(books)], axis=2)
    return rounded(book[numbers].sum(axis=2), "fp16").reshape(codes.shape[0], -1)


def dot_products(a: Values, b: Values) -> Values:
    """Return the sums of a * b [rows, 1]: chains of eight neighbours in fp16, even and odd ones apart, else fp32."""
    products = (a * b).reshape(a.shape[0], -1, CODE_WEIGHTS // 2, 2)  # of two fp16: exact
    chain = rounded(products[:, :, 0], "fp16")
    for step in range(1, CODE_WEIGHTS // 2):
        chain = rounded(chain + products[:, :, step], "fp16")
    result: Values = chain.sum(axis=(1, 2), dtype=np.float32).reshape(-1, 1)
    return result


def polynomial_exp2(x: Values) -> Values:
    """Return 2^x by range reduction and a polynomial of degree 3, as `passes.select.exponential` computes it."""
    floor = np.floor(np.maximum(x, _LEAST_EXPONENT))
    fraction = (np.maximum(x, _LEAST_EXPONENT) - floor).astype(np.float32)
    power = np.zeros_like(fraction) + _EXP2_POLYNOMIAL[-1]
    for coefficient in reversed(_EXP2_POLYNOMIAL[:-1]):
        power = power * fraction + coefficient
    result: Values = np.ldexp(power, floor.astype(np.int32)).astype(np.float32)
    return result


def _mixed_exp2(x: Values, period: Values, share: Values) -> Values:
    """2^x; of each `period` columns the last `share` by the polynomial."""
    column = np.arange(x.shape[1]) % int(period.item())
    result: Values = np.where(column >= period.item() - share.item(), polynomial_exp2(x), np.exp2(x))
    return result


_FUNCTIONS: Mapping[str, Callable[..., Values]] = {
    "add": lambda *xs: sum(xs[1:], xs[0]),
    "sub": lambda x, y: x - y,
    "mul": lambda *xs: np.prod(np.broadcast_arrays(*xs), axis=0, dtype=np.float32) if len(xs) > 2 else xs[0] * xs[-1],
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "max": lambda x, y: np.maximum(x, y),
    "min": lambda x, y: np.minimum(x, y),
    "exp2": lambda x: np.exp2(x),
    "exp": lambda x: np.exp2(x * _LOG2_E),
    "reciprocal": lambda x: np.float32(1) / x,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "silu": _silu,
    "neg": lambda x: -x,
    "cast": lambda x: x,
    "cast_regrouped": lambda x: x,
    "copy": lambda x: x,
    "scale": lambda x, factor: x * factor,
    "scaled_sub": lambda x, y, factor: x * factor - y,
    "exp2_scaled_sub": lambda x, y, factor: np.exp2(x * factor - y),
    "exp2_poly_scaled_sub": lambda x, y, factor: polynomial_exp2(x * factor - y),
    "exp2_mixed": _mixed_exp2,
    "log2": lambda x: np.log2(x),
    "choose": lambda x, y: x,
    "check": lambda x: x,
    "rotate": _rotate,
}


def elementwise(function: str, operands: Sequence[Values], where: SourceLocation | None = None) -> Values:
    """Apply a named function to tiles and scalars; operands broadcast. Raises UserError on an unknown name."""
    if function not in _FUNCTIONS:
        raise unknown_name("element-wise function", function, _FUNCTIONS, where)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return np.asarray(_FUNCTIONS[function](*operands), np.float32)
