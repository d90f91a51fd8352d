"""Probes of the arithmetic pipes, the register file and the issue stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Control, Instruction, Register
from heddle.study.micro_build import MAX_STALL, Condition, Setup, cycles_each, registers, waiting

LANES = 32
_MATRIX_SOURCES = (Register(4, 4), Register(8, 2))


def _sources(op: str, dst: int) -> tuple[Register, ...]:
    """Return sources without a bank conflict: the first depends on `dst`, the second is in the other bank."""
    if op == "HMMA":
        return _MATRIX_SOURCES
    if op in {"MUFU", "SHFL", "F2F", "F2I", "I2F", "MOV", "UMOV", "LDS"}:
        return registers(dst)
    return registers(dst, dst + 1, dst) if op in {"FFMA", "HFMA2", "IMAD", "FFMA2", "DFMA"} else registers(dst, dst + 1)


def _shape(op: str, dtype: str) -> tuple[int, int, int] | None:
    depth = {"tf32": 8, "fp8_e4m3": 32}.get(dtype, 16)
    return (16, 8, depth) if op == "HMMA" else None


def _step(op: str, dtype: str, dst: int, control: Control, sources: tuple[Register, ...] | None = None) -> Instruction:
    return Instruction(
        op=op,
        dst=Register(dst, 4 if op == "HMMA" else 1),
        src=_sources(op, dst) if sources is None else sources,
        dtype=dtype,
        shape=_shape(op, dtype),
        bytes=128 if OPCODES[op].unit is Unit.SHARED else 0,
        control=control,
    )


def dependent(condition: Condition, op: str, dtype: str = "") -> float:
    """Cycles from an instruction to one that needs its result, as a compiler encodes it: a stall count or a counter."""
    timing = condition.machine.op_timing(op, dtype=dtype, shape=_shape(op, dtype))
    fixed = OPCODES[op].unit is Unit.FIXED and timing.latency_cycles <= MAX_STALL
    control = Control(stall=timing.latency_cycles) if fixed else waiting(0, stall=2, write=0)
    return cycles_each(condition, lambda n: [_step(op, dtype, 16, control)] * n, Setup())


def independent(condition: Condition, op: str, dtype: str = "", warps: int = 1) -> float:
    """Cycles an instruction and subpartition, results not needed, `warps` warps an SM."""
    body = [_step(op, dtype, 16 + 4 * i, Control()) for i in range(8)]
    setup = Setup(warps=warps)
    per_warp = max(1, warps // condition.machine.subpartitions)
    return cycles_each(condition, lambda n: body * (n // 8), setup) / per_warp


def throughput(condition: Condition, op: str, dtype: str = "", warps: int = 16) -> float:
    """Lanes a cycle and SM with `warps` warps of independent instructions."""
    return LANES * mixed_issue(condition, [op], warps=warps, dtype=dtype)


def mixed_issue(condition: Condition, ops: Sequence[str], warps: int = 16, dtype: str = "") -> float:
    """Instructions a cycle and SM when every warp issues `ops` in turn, all independent."""
    body = [_step(ops[i % len(ops)], dtype, 16 + 4 * (i % 8), Control()) for i in range(8 * len(ops))]
    step = cycles_each(condition, lambda n: body * (n // 8), Setup(warps=warps))
    return warps * len(ops) / step


def matrix_flops(condition: Condition, op: str, dtype: str, warps: int = 8) -> float:
    """FLOP a cycle and SM of mma.sync, all warps issuing independent ones."""
    m, n, k = _shape(op, dtype) or (0, 0, 0)
    return 2 * m * n * k * mixed_issue(condition, [op], warps=warps, dtype=dtype)


def conflict_cycles(condition: Condition, sources: Sequence[int], reuse: int = -1) -> float:
    """Cycles that the source registers add to a dependent FFMA, beyond one without a bank conflict."""
    stall = condition.machine.op_timing("FFMA").latency_cycles

    def chain(operands: tuple[Register, ...]) -> float:
        step = _step("FFMA", "", 16, Control(stall=stall), operands)
        return cycles_each(condition, lambda n: [step] * n, Setup())

    return chain(registers(*sources, reuse=reuse)) - chain(registers(16, 17, 16))


def operand_rate(condition: Condition, sources: Sequence[Sequence[int]], reuse: int = -1, warps: int = 16) -> float:
    """FFMA a cycle and subpartition, the instructions naming the given source registers in turn."""
    body = [
        _step("FFMA", "", 16 + i % 8, Control(), registers(*sources[i % len(sources)], reuse=reuse)) for i in range(24)
    ]
    step = cycles_each(condition, lambda n: body * (n // 24), Setup(warps=warps), (72, 240))
    return warps / condition.machine.subpartitions / step


PROBES: dict[str, Callable[..., float]] = {
    "dependent": dependent,
    "independent": independent,
    "throughput": throughput,
    "mixed_issue": mixed_issue,
    "matrix_flops": matrix_flops,
    "conflict_cycles": conflict_cycles,
    "operand_rate": operand_rate,
}
"""Probes by the name that the rows use."""
