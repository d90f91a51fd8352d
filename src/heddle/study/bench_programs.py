"""The synthetic program of `heddle bench`: a mix like that of an attention kernel, without its algorithm.

`fan`: a producer warp feeds two warp groups by bulk copies through a two-stage ring; every consumer warp issues, for
each stage, 64 matrix instructions with fp32, integer, special-function and shared-memory instructions between them.
"""

from __future__ import annotations

import numpy as np

from heddle.ir.warp import (
    Barrier,
    BarrierRef,
    Control,
    Count,
    Instruction,
    Register,
    Ring,
    Role,
    Source,
    Stream,
    StreamRef,
    Tensor,
    WarpProgram,
    Work,
)

STAGES = 2
STAGE_BYTES = 16384
MATRIX_INSTRUCTIONS = 64  # of a warp and stage
ACCUMULATOR = Register(32, 16)
RING = "stage"


def fan(iterations: int = 128) -> WarpProgram:
    """Return the program for sm_90: 9 warps, about 1,065 instructions a consumer warp and iteration."""
    producer = _producer(iterations)
    consumer = _consumer(iterations, len(producer))
    return WarpProgram(
        name="fan",
        architecture="sm_90",
        instructions=(*producer, *consumer),
        roles=(
            Role(name="consumer", first_warp=0, warps=8, entry=len(producer), registers_per_thread=168),
            Role(name="producer", first_warp=8, warps=1, entry=0, registers_per_thread=40),
        ),
        rings=(Ring(name=RING, depth=STAGES),),
        barriers=(
            Barrier(name="full", count=STAGES, arrivals=1),
            Barrier(name="empty", count=STAGES, arrivals=8),
        ),
        tensors=(Tensor(name="A", shape=(iterations, STAGE_BYTES // 2), dtype="fp16"),),
        streams=(
            Stream(
                name="a", tensor="A", direction="load", blocks=iterations, block_bytes=STAGE_BYTES, base="first", step=1
            ),
        ),
        work=Work(attributes=("first",), items=np.zeros((1, 1), np.int64), schedule="static", grid=1),
        sources=(Source(file=__file__, line=1, operation="bench"),),
        shared_memory_bytes=STAGES * STAGE_BYTES + 64,
        flops=2 * 8 // 4 * iterations * MATRIX_INSTRUCTIONS * 64 * 32 * 16,
    )


def _producer(iterations: int) -> list[Instruction]:
    full, empty = BarrierRef(name="full", ring=RING), BarrierRef(name="empty", ring=RING, flip=True)
    return [
        Instruction(op="SYNCS.TRYWAIT", barrier=empty),
        Instruction(op="SYNCS.EXPECT", barrier=full, bytes=STAGE_BYTES),
        Instruction(op="UTMALDG", barrier=full, bytes=STAGE_BYTES, stream=StreamRef(name="a"), advance=(RING,)),
        Instruction(op="LOOP", target=0, count=Count(value=iterations)),
        Instruction(op="EXIT"),
    ]


def _consumer(iterations: int, entry: int) -> list[Instruction]:
    full, empty = BarrierRef(name="full", ring=RING), BarrierRef(name="empty", ring=RING)
    rows = [Instruction(op="SYNCS.TRYWAIT", barrier=full), Instruction(op="WARPGROUP.ARRIVE")]
    for index in range(MATRIX_INSTRUCTIONS):
        rows += _mix(index)
    rows += [
        Instruction(op="WARPGROUP.COMMIT"),
        Instruction(op="WARPGROUP.DEPBAR", pending=0),
        Instruction(op="SYNCS.ARRIVE", barrier=empty, advance=(RING,)),
        Instruction(op="LOOP", target=entry, count=Count(value=iterations)),
        Instruction(op="EXIT"),
    ]
    return rows


def _mix(index: int) -> list[Instruction]:
    """One matrix instruction and 15 or 16 others; loads and exponentials are used one round later."""
    new, old = _registers(index), _registers(index - 1)
    loaded, special = Control(wait=frozenset({1})), Control(wait=frozenset({0}))
    rows = [Instruction(op="HGMMA", dst=ACCUMULATOR, shape=(64, 32, 16), form="ss", dtype="fp16")]
    for i in range(4):  # sources lie in both register banks
        rows.append(Instruction(op="FFMA", dst=new[2], src=(new[2], Register(8 + i), Register(21 + i))))
        rows.append(Instruction(op="FADD", dst=new[3], src=(new[3], Register(10))))
    rows += [Instruction(op="IADD3", dst=new[2 + i % 2], src=(new[2 + i % 2], Register(9 + i))) for i in range(4)]
    rows.append(Instruction(op="FADD", dst=old[3], src=(old[0], Register(9)), control=loaded))
    if index % 2:
        rows.append(Instruction(op="FMUL", dst=old[2], src=(old[1], Register(10)), control=special))
    rows += [
        Instruction(op="LDS", dst=new[0], src=(Register(2),), bytes=128, control=Control(write_barrier=1)),
        Instruction(op="MUFU", dst=new[1], src=(new[2],), control=Control(write_barrier=0)),
    ]
    return rows


def _registers(index: int) -> list[Register]:
    """The four registers of a round; 16 rounds share none."""
    first = 64 + 4 * (index % 16)
    return [Register(first + offset) for offset in range(4)]
