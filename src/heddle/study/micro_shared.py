"""Probes of shared memory and of synchronisation inside the SM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heddle.ir.warp import Barrier, BarrierRef, Control, Instruction, Register, Ring
from heddle.study.micro_build import Condition, Setup, cycles_each, registers, waiting


def _load(bytes_: int, ways: int, control: Control, dst: int = 16, op: str = "LDS") -> Instruction:
    return Instruction(
        op=op,
        dst=Register(dst, max(1, bytes_ // 128)),
        src=registers(2),
        bytes=bytes_,
        conflict_ways=ways,
        control=control,
    )


def shared_latency(condition: Condition, bytes: int = 128, ways: int = 1) -> float:
    """Cycles of a load whose address is the result of the one before."""
    step = _load(bytes, ways, waiting(0, stall=2, write=0))
    return cycles_each(condition, lambda n: [step] * n, Setup(shared_memory_bytes=32768))


def conflict_way_cycles(condition: Condition, ways: int) -> float:
    """Cycles that each further way of a bank conflict adds to the latency of a load."""
    return (shared_latency(condition, ways=ways) - shared_latency(condition)) / (ways - 1)


def shared_bandwidth(condition: Condition, bytes: int, op: str = "LDS", warps: int = 16) -> float:
    """Bytes a cycle and SM, all warps loading (or storing) without conflicts; `bytes` of one warp's access."""
    step = _load(bytes, 1, Control(), op=op)
    return bytes * warps / cycles_each(condition, lambda n: [step] * n, Setup(warps=warps, shared_memory_bytes=32768))


def barrier_sync(condition: Condition, warps: int) -> float:
    """Cycles of one __syncthreads of a CTA of `warps` warps that do nothing else."""
    step = Instruction(op="BAR.SYNC", warps=warps)
    return cycles_each(condition, lambda n: [step] * n, Setup(warps=warps, registers=32))


def _mbarrier(count: int, ring: str = "r") -> tuple[tuple[Ring, ...], tuple[Barrier, ...]]:
    return (Ring(name=ring, depth=count),), (Barrier(name="b", count=count, arrivals=1),)


def mbarrier_round_trip(condition: Condition) -> float:
    """Cycles of an arrival that completes a phase and a wait for it, by one warp."""
    rings, barriers = _mbarrier(2)
    ref = BarrierRef(name="b", ring="r")

    def body(n: int) -> Sequence[Instruction]:
        pair = [
            Instruction(op="SYNCS.ARRIVE", barrier=ref),
            Instruction(op="SYNCS.TRYWAIT", barrier=ref, advance=("r",)),
        ]
        return pair * n

    return cycles_each(condition, body, Setup(rings=rings, barriers=barriers, shared_memory_bytes=1024))


def cluster_barrier(condition: Condition, warps: int = 4) -> float:
    """Cycles of one barrier of a cluster of two CTAs of `warps` warps."""
    step = Instruction(op="UCGABAR", warps=2 * warps)
    return cycles_each(condition, lambda n: [step] * n, Setup(warps=warps, cluster_size=2))


PROBES: dict[str, Callable[..., float]] = {
    "shared_latency": shared_latency,
    "conflict_way_cycles": conflict_way_cycles,
    "shared_bandwidth": shared_bandwidth,
    "barrier_sync": barrier_sync,
    "mbarrier_round_trip": mbarrier_round_trip,
    "cluster_barrier": cluster_barrier,
}
"""Probes by the name that the rows use."""
