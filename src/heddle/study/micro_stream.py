"""Probe of streaming kernels with one element a thread: CTA turnaround, latency and bandwidth at a given occupancy.

The kernel is that of RRZE's gpu-stream: each CTA reads its indices, loads one double of each input, stores one double
and ends; the next CTA then starts in its slot. Few threads show latency and CTA launch, many show DRAM bandwidth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from heddle.ir.warp import Control, Instruction, Register, Stream, StreamRef, Tensor
from heddle.machine import Machine
from heddle.study.micro_build import Condition, Setup, cycles, registers, waiting

LANES = 32
ELEMENT = 8  # bytes: double
_LOADS_STORES = {"init": (0, 1), "read": (1, 0), "scale": (1, 1), "triad": (3, 1)}
BATCHES = 16  # write batches of every channel between the two lengths of a run,
MOST_ROUNDS = 96  # but no more CTAs a slot than these
SMALL_L2 = 4 << 20  # bytes: written data leave L2 within the run, as they do in the measured gigabyte


def _index(condition: Condition) -> list[Instruction]:
    """Return the address arithmetic at the head of the kernel: thread and block index, bounds check, address."""

    def fixed(op: str, dst: int, *sources: int, wait: Sequence[int] = ()) -> Instruction:
        stall = condition.machine.op_timing(op).latency_cycles
        return Instruction(op=op, dst=Register(dst), src=registers(*sources), control=waiting(*wait, stall=stall))

    return [
        Instruction(op="S2R", dst=Register(2), control=Control(write_barrier=0)),
        Instruction(op="S2R", dst=Register(3), control=Control(write_barrier=1)),
        fixed("IMAD", 4, 3, 2, wait=(0, 1)),
        fixed("ISETP", 5, 4),
        fixed("IMAD", 6, 4, 5),
    ]


def _body(condition: Condition, loads: int, stores: int, warps: int) -> list[Instruction]:
    body = _index(condition)
    for i in range(loads):
        body.append(
            Instruction(
                op="LDG",
                dst=Register(8 + 2 * i, 2),
                src=registers(6),
                bytes=LANES * ELEMENT,
                stream=StreamRef(name=f"load{i}", parts=warps, part_by_rank=True),
                control=Control(write_barrier=2),
            )
        )
    wait = (2,) if loads else ()
    body.append(Instruction(op="DFMA", dst=Register(16, 2), src=registers(8), control=waiting(*wait, write=3)))
    if stores:
        ref = StreamRef(name="store", parts=warps, part_by_rank=True)
        body.append(
            Instruction(
                op="STG", src=(Register(6), Register(16, 2)), bytes=LANES * ELEMENT, stream=ref, control=waiting(3)
            )
        )
    return body


def _blocks(item: int, arrays: int, span: int) -> list[int]:
    """Return a CTA's block in each array: neighbours swap, so that arrays do not agree on the partition of L2.

    `span`: blocks that lie together in one partition, a power of two.
    """
    return [item ^ ((item // (span << (array + 1)) & 1) * span) for array in range(arrays)]


def _rounds(machine: Machine, moved: int, written: int) -> tuple[int, int]:
    """Return two lengths of a run, in CTAs of every slot; time grows by the difference.

    `moved`, `written`: bytes a round. A kernel that writes fills L2 first, or nothing of it would reach DRAM, and goes
    on until every channel has written many batches.
    """
    if written == 0:
        return 6, 30
    fill = max(6, -(-2 * SMALL_L2 // moved))
    return fill, fill + min(MOST_ROUNDS, BATCHES * machine.dram_channels * machine.dram_write_batch_bytes // written)


def stream_bandwidth(condition: Condition, kernel: str, threads: int, ctas: int) -> float:
    """GB/s of a kernel (init, read, scale, triad) with `ctas` CTAs of `threads` threads resident on each SM."""
    machine = condition.machine
    loads, stores = _LOADS_STORES[kernel]
    warps, block = threads // LANES, threads * ELEMENT
    small = machine.replace(l2_bytes=SMALL_L2, max_ctas_per_sm=ctas)
    run = dataclasses.replace(condition, machine=small, mode="chip", l2_state="cold")
    span = max(1, machine.dram_interleave_bytes // block)
    row = block * machine.sms * ctas
    short, long = _rounds(machine, (loads + stores) * row, stores * row)
    blocks = -(-machine.sms * ctas * long // (2 * span)) * 2 * span
    names = [*(f"load{i}" for i in range(loads)), *(["store"] if stores else [])]

    def timed(count: int) -> int:
        setup = Setup(
            warps=warps,
            registers=32,
            schedule="launch",
            tensors=tuple(
                Tensor(name=name, shape=(blocks * block,), dtype="int8", role="output" if name == "store" else "input")
                for name in names
            ),
            streams=tuple(
                Stream(name=name, tensor=name, direction="store" if name == "store" else "load", blocks=blocks,
                       block_bytes=block, base=f"base_{name}")
                for name in names
            ),
            attributes=tuple(f"base_{name}" for name in names),
            items=[_blocks(i, len(names), span) for i in range(machine.sms * ctas * count)],
        )  # fmt: skip
        return cycles(run, _body(condition, loads, stores, warps), setup)

    step = (timed(long) - timed(short)) / (long - short)
    return (loads + stores) * block * machine.sms * ctas / step * condition.clock_mhz * 1e6 / 1e9


PROBES = {"stream_bandwidth": stream_bandwidth}
"""Probes by the name that the rows use."""
