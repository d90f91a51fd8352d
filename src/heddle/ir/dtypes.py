"""Element types of tensors and tiles: their sizes, and the NumPy types that hold them."""

from __future__ import annotations

from heddle.errors import SourceLocation, unknown_name

DTYPE_BYTES: dict[str, int] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int32": 4,
    "uint8": 1,
    "uint16": 2,
}
"""Bytes of one element in memory."""

NUMPY_NAMES: dict[str, str] = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "int32": "int32",
    "uint8": "uint8",
    "uint16": "uint16",
}
"""Names for `numpy.dtype`; the last ones need `ml_dtypes` to be imported."""


def dtype_bytes(dtype: str, where: SourceLocation | None = None) -> int:
    """Return the bytes of one element; raises UserError on an unknown type."""
    if dtype not in DTYPE_BYTES:
        raise unknown_name("element type", dtype, DTYPE_BYTES, where)
    return DTYPE_BYTES[dtype]
