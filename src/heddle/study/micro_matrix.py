"""Probes of the asynchronous matrix units: wgmma and tcgen05."""

from __future__ import annotations

from collections.abc import Callable

from heddle.ir.warp import Barrier, BarrierRef, Instruction, Register, Ring
from heddle.study.micro_build import Condition, Setup, cycles_each, registers

_DEPTH = {"tf32": 8, "fp8_e4m3": 32, "fp8_e5m2": 32}
WARP_GROUP = 4
_COLUMNS = 512


def _k(dtype: str) -> int:
    return _DEPTH.get(dtype, 16)


def _wgmma(n: int, form: str, dtype: str) -> Instruction:
    op = "QGMMA" if dtype.startswith("fp8") else "HGMMA"
    sources = (Register(8, 4),) if form == "rs" else registers(2)
    return Instruction(op=op, dst=Register(24, n // 2), src=sources, shape=(64, n, _k(dtype)), form=form, dtype=dtype)


def wgmma_cycles(condition: Condition, n: int, form: str, dtype: str = "fp16") -> float:
    """Cycles from one wgmma of a warp group to the next, of a long sequence on one accumulator."""
    setup = Setup(warps=WARP_GROUP, registers=168, shared_memory_bytes=65536)
    return cycles_each(condition, lambda count: [_wgmma(n, form, dtype)] * count, setup)


def wgmma_flops(condition: Condition, n: int, form: str, dtype: str = "fp16", groups: int = 2) -> float:
    """FLOP a cycle and SM of `groups` warp groups that issue wgmma back to back."""
    setup = Setup(warps=WARP_GROUP * groups, registers=168, shared_memory_bytes=65536)
    step = cycles_each(condition, lambda count: [_wgmma(n, form, dtype)] * count, setup)
    return groups * 2 * 64 * n * _k(dtype) / step


def _tcgen05(m: int, n: int, ctas: int, form: str, dtype: str) -> Instruction:
    op = "UTCQMMA" if dtype.startswith("fp8") else "UTCHMMA"
    return Instruction(op=op, src=registers(2), shape=(m, n, _k(dtype)), form=form, dtype=dtype, ctas=ctas)


def _leader(ctas: int) -> Setup:
    return Setup(
        rings=(Ring(name="r", depth=2),),
        barriers=(Barrier(name="b", count=2, arrivals=1),),
        shared_memory_bytes=65536,
        tensor_memory_columns=_COLUMNS,
        cluster_size=ctas,
        leader_only=ctas > 1,
    )


def _commit_and_wait() -> list[Instruction]:
    ref = BarrierRef(name="b", ring="r")
    return [Instruction(op="UTCBAR", barrier=ref), Instruction(op="SYNCS.TRYWAIT", barrier=ref, advance=("r",))]


def tcgen05_cycles(condition: Condition, m: int, n: int, ctas: int, form: str, dtype: str = "bf16") -> float:
    """Cycles from one tcgen05.mma to the next, of a long sequence."""
    step = _tcgen05(m, n, ctas, form, dtype)
    return cycles_each(condition, lambda count: [step] * count, _leader(ctas))


def tcgen05_latency(condition: Condition, m: int, n: int, ctas: int, form: str, dtype: str = "bf16") -> float:
    """Cycles of one tcgen05.mma, its commit and the wait for it, repeated by one warp."""
    step = [_tcgen05(m, n, ctas, form, dtype), *_commit_and_wait()]
    return cycles_each(condition, lambda count: step * count, _leader(ctas), (16, 48))


PROBES: dict[str, Callable[..., float]] = {
    "wgmma_cycles": wgmma_cycles,
    "wgmma_flops": wgmma_flops,
    "tcgen05_cycles": tcgen05_cycles,
    "tcgen05_latency": tcgen05_latency,
}
"""Probes by the name that the rows use."""
