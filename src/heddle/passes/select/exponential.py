"""Powers of two on the FMA pipe, for where the special function unit is the bottleneck (sm_100).

2^x = 2^floor(x) * 2^(x - floor(x)). Adding a constant whose last mantissa bit is worth 1, rounding down, leaves the
floor in the low bits; a polynomial of degree 3 gives the power of the fraction; the floor is added to its exponent.
Six packed operations and four integer or minimum operations serve two elements (FlashAttention 4, arXiv 2603.05451).
"""

from __future__ import annotations

from heddle.passes.draft import Operand
from heddle.passes.select.writer import RoleWriter

DEGREE = 3
Pair = tuple[Operand, Operand]


def emit_polynomial_pair(writer: RoleWriter, target: Pair, source: Pair) -> None:
    """Emit target = 2^source for two elements; `target` may be `source`."""
    clamped = writer.value("clamped", 2)
    for i, element in enumerate(source):
        writer.emit("FMNMX", Operand(clamped, i), (element,))  # keeps the exponent above that of the smallest number
    whole = _packed(writer, "FADD2", "floor_bits", Operand(clamped, 0, 2))
    floor = _packed(writer, "FADD2", "floor", whole)
    fraction = _packed(writer, "FADD2", "fraction", Operand(clamped, 0, 2), floor)
    power = _packed(writer, "FFMA2", "power", fraction)
    for _ in range(DEGREE - 1):
        power = _packed(writer, "FFMA2", "power", power, fraction)
    for i, element in enumerate(target):
        writer.emit("LEA", element, (Operand(whole.value, i), Operand(power.value, i)))


def _packed(writer: RoleWriter, opcode: str, name: str, *sources: Operand) -> Operand:
    result = Operand(writer.value(name, 2), 0, 2)
    writer.emit(opcode, result, sources)
    return result
