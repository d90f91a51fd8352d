"""Probes of L2, DRAM and the copy engines: latency chains of one warp, and traffic of the whole chip."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from heddle.ir.warp import (
    Barrier,
    BarrierRef,
    Control,
    Count,
    Instruction,
    Register,
    Ring,
    Stream,
    StreamRef,
    Tensor,
)
from heddle.study.micro_build import Condition, Setup, cycles, cycles_each, registers, waiting

Level = Literal["near", "far", "mean"]
SECTOR = 32  # bytes: one lane of a pointer chase
LINE = 128  # bytes: what a miss of one lane fetches
UNROLL = 8  # loads in flight a warp
WIDE = 512  # bytes: 16 a lane
COPIES = (100, 400)  # of a CTA in the two runs of a bulk probe: SMs start together and drift apart over hundreds,
MEASURED_BYTES = 2 << 30  # but no more than the measured runs read in all (2 GiB on B200, 4 GiB on H800)


def _chip(condition: Condition, l2_state: Literal["warm", "cold"]) -> Condition:
    return dataclasses.replace(condition, mode="chip", l2_state=l2_state)


def _stream(name: str, direction: Literal["load", "store"], blocks: int, block_bytes: int, **more: int | str) -> Stream:
    return Stream(name=name, tensor=name[0], direction=direction, blocks=blocks, block_bytes=block_bytes, **more)  # type: ignore[arg-type]


def _tensor(name: str, bytes_: int) -> Tensor:
    return Tensor(name=name, shape=(bytes_,), dtype="int8", role="output" if name == "s" else "input")


def load_latency(condition: Condition, level: Level, memory: Literal["l2", "dram"]) -> float:
    """Cycles of a load whose address is the result of the one before, one warp on the chip.

    `level`: blocks of the near or the far partition only, or both in turn.
    """
    steps = (64, 192)
    step, base = {"near": (2, 0), "far": (2, 1), "mean": (1, 0)}[level]
    unit = condition.machine.dram_interleave_bytes  # all of it lies in one partition
    stream = _stream("x", "load", 2 * max(steps), unit, base="base", step=step)
    setup = Setup(tensors=(_tensor("x", stream.blocks * unit),), streams=(stream,), items=((base,),))

    def body(n: int) -> Sequence[Instruction]:
        return [
            Instruction(
                op="LDG",
                dst=Register(16),
                src=registers(16),
                bytes=SECTOR,
                stream=StreamRef(name="x", offset=i, parts=unit // LINE),
                control=waiting(0, stall=2, write=0),
            )
            for i in range(n)
        ]

    return cycles_each(_chip(condition, "warm" if memory == "l2" else "cold"), body, setup, steps)


def _traffic(loads: int, stores: int, warps: int, count: int, level: int) -> list[Instruction]:
    """Return a loop of `count` passes: UNROLL wide loads of each input, then as many stores, results awaited in
    between.
    """
    body = []
    for i in range(UNROLL):
        for j in range(loads):
            ref = StreamRef(name=f"{'xyz'[j]}{i}", parts=warps, part_by_rank=True)
            wait = (5,) if stores and i == 0 and j == 0 else ()
            body.append(Instruction(op="LDG", dst=Register(8 + 4 * i, 4), src=registers(2), bytes=WIDE, stream=ref,
                                    control=waiting(*wait, write=i % 4)))  # fmt: skip
    for i in range(UNROLL if stores else 0):
        ref = StreamRef(name=f"s{i}", parts=warps, part_by_rank=True)
        body.append(Instruction(op="STG", src=(Register(2), Register(8 + 4 * i, 4)), bytes=WIDE, stream=ref,
                                control=waiting(i % 4, read=5)))  # fmt: skip
    body.append(Instruction(op="LOOP", target=0, level=level, count=Count(value=count), control=waiting(0, 1, 2, 3)))
    return body


def chip_bandwidth(
    condition: Condition,
    memory: Literal["l2", "dram"],
    loads: int = 1,
    stores: int = 0,
    warps: int = 32,
    passes: tuple[int, int] = (4, 12),
) -> float:
    """TB/s of all SMs: `loads` arrays read, `stores` arrays written.

    From DRAM, every address is new; from L2, each warp reads the same UNROLL lines again and again.
    """
    machine = condition.machine
    level = 0 if memory == "dram" else 1  # streams advance with the counter of level 0
    if memory == "dram":  # a small L2, so that written data leave it during the run
        machine = machine.replace(l2_bytes=4 << 20)
    block = warps * WIDE
    each = UNROLL * max(passes) if memory == "dram" else UNROLL
    names = [*"xyz"[:loads], *(["s"] if stores else [])]
    streams = tuple(
        _stream(f"{name}{i}", "store" if name == "s" else "load", each * machine.sms, block, base=f"b{i}", step=UNROLL)
        for name in names
        for i in range(UNROLL)
    )
    setup = Setup(
        warps=warps,
        tensors=tuple(_tensor(name, each * machine.sms * block) for name in names),
        streams=streams,
        attributes=tuple(f"b{i}" for i in range(UNROLL)),
        items=[[sm * each + i for i in range(UNROLL)] for sm in range(machine.sms)],
    )
    run = dataclasses.replace(_chip(condition, "warm" if memory == "l2" else "cold"), machine=machine)
    step = cycles_each(run, lambda n: _traffic(loads, stores, warps, n, level), setup, passes)
    bytes_ = (loads + stores) * UNROLL * block * machine.sms
    return bytes_ / step * condition.clock_mhz * 1e6 / 1e12


def _bulk_loop(stages: int, bytes_: int, count: int, arithmetic: bool) -> list[Instruction]:
    """Return a producer that keeps `stages` bulk copies in flight and refills a stage as soon as it has landed."""
    fill = BarrierRef(name="full", ring="fill")
    landed = Instruction(op="SYNCS.TRYWAIT", barrier=BarrierRef(name="full", ring="use"), advance=("use",))
    index = [  # the loop's index, bound and coordinate, the last in a uniform register
        Instruction(op=op, dst=Register(dst), src=registers(src), control=Control(stall=stall))
        for op, dst, src, stall in (("IADD3", 4, 4, 4), ("ISETP", 5, 4, 4), ("IMAD", 6, 4, 4), ("R2UR", 7, 6, 8))
    ]

    def copy(offset: int) -> list[Instruction]:
        ref = StreamRef(name="x", offset=offset)
        return [
            Instruction(op="SYNCS.EXPECT", barrier=fill, bytes=bytes_),
            Instruction(op="UTMALDG", barrier=fill, bytes=bytes_, stream=ref, advance=("fill",)),
        ]

    body = [step for i in range(stages) for step in copy(i)]
    start = len(body)
    body += [landed, *(index if arithmetic else []), *copy(stages)]
    body.append(Instruction(op="LOOP", target=start, level=0, count=Count(value=count)))
    return body + [landed] * stages


def _bulk_setup(sms: int, stages: int, bytes_: int, count: int, step: int = 1) -> Setup:
    """Return a set-up in which the SMs take the blocks of a tensor in turn; `step`: of them, one in so many."""
    blocks = sms * (stages + count) * step
    return Setup(
        rings=(Ring(name="fill", depth=stages), Ring(name="use", depth=stages)),
        barriers=(Barrier(name="full", count=stages, arrivals=1),),
        tensors=(_tensor("x", blocks * bytes_),),
        streams=(_stream("x", "load", blocks, bytes_, base="base", step=sms * step),),
        items=[[sm * step] for sm in range(sms)],
        shared_memory_bytes=stages * bytes_ + 1024,
    )


def bulk_step(
    condition: Condition,
    bytes: int,
    stages: int = 1,
    memory: Literal["l2", "dram"] = "dram",
    sms: int = 0,
    step: int = 1,
    arithmetic: bool = True,
) -> float:
    """Cycles from one bulk copy of an SM to the next, every SM (or `sms` of them) keeping `stages` in flight.

    The copies go `step` blocks forward: 2 keeps small ones in one partition of L2. `arithmetic`: the loop computes the
    next address before it issues the copy. The measured runs have hundreds to thousands of copies, over which SMs drift
    apart and meet at DRAM as chance will have it; from a common start they keep out of each other's way for long.
    """
    sms = sms or condition.machine.sms
    share = min(1.0, MEASURED_BYTES / (sms * bytes * max(COPIES)))
    lengths = (int(share * min(COPIES)), int(share * max(COPIES)))
    setup = _bulk_setup(sms, stages, bytes, max(lengths), step)
    run = _chip(condition, "warm" if memory == "l2" else "cold")
    return cycles_each(run, lambda n: _bulk_loop(stages, bytes, n, arithmetic), setup, lengths)


def bulk_latency(condition: Condition, bytes: int, memory: Literal["l2", "dram"]) -> float:
    """Cycles of one bulk copy and the wait for it, one warp on the chip, near partition if small."""
    step = max(2, 2 * condition.machine.dram_interleave_bytes // bytes)  # the next but one unit
    return bulk_step(condition, bytes, 1, memory, sms=1, step=step, arithmetic=False)


def bulk_bandwidth(
    condition: Condition, bytes: int, stages: int = 1, ctas: int = 1, memory: Literal["l2", "dram"] = "dram"
) -> float:
    """GB/s of the chip when each of `ctas` CTAs of every SM keeps `stages` bulk copies of `bytes` in flight."""
    all_ctas = ctas * condition.machine.sms
    step = bulk_step(condition, bytes, stages, memory, sms=all_ctas)
    return bytes * all_ctas / step * condition.clock_mhz * 1e6 / 1e9


def bulk_burst(condition: Condition, bytes: int, copies: int, ctas: int, memory: Literal["l2", "dram"]) -> float:
    """Cycles of a whole kernel of `ctas` CTAs that each load `copies` blocks by bulk copy and wait for them."""
    fill = BarrierRef(name="full", ring="fill")
    body: list[Instruction] = []
    for i in range(copies):
        ref = StreamRef(name="x", offset=i)
        body.append(Instruction(op="SYNCS.EXPECT", barrier=fill, bytes=bytes))
        body.append(Instruction(op="UTMALDG", barrier=fill, bytes=bytes, stream=ref, advance=("fill",)))
    wait = Instruction(op="SYNCS.TRYWAIT", barrier=BarrierRef(name="full", ring="use"), advance=("use",))
    setup = _bulk_setup(ctas, copies, bytes, 0)
    return cycles(_chip(condition, "warm" if memory == "l2" else "cold"), body + [wait] * copies, setup)


PROBES: dict[str, Callable[..., float]] = {
    "load_latency": load_latency,
    "chip_bandwidth": chip_bandwidth,
    "bulk_step": bulk_step,
    "bulk_latency": bulk_latency,
    "bulk_bandwidth": bulk_bandwidth,
    "bulk_burst": bulk_burst,
}
"""Probes by the name that the rows use."""
