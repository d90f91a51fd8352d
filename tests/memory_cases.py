"""Small machines and programs for the tests of the memory system."""

from __future__ import annotations

import numpy as np

from heddle.ir.warp import Count, Instruction, Role, Stream, StreamRef, Tensor, WarpProgram, Work
from heddle.machine import Machine
from heddle.machine import machine as preset

CLOCK_MHZ = 1500.0


def machine(name: str = "h100", **changes: object) -> Machine:
    """Return a preset with changes."""
    return preset(name).replace(**changes) if changes else preset(name)


def stream_program(
    *,
    blocks: int = 64,
    block_bytes: int = 1024,
    parts: int = 1,
    direction: str = "load",
    steps: int = 8,
    items: int = 1,
    grid: int = 1,
    part_by_rank: bool = False,
    warps: int = 1,
) -> WarpProgram:
    """Return a program whose item i reads (or writes) blocks i * steps ... of one tensor in a loop."""
    stream = Stream(name="x", tensor="X", direction=direction, blocks=blocks, block_bytes=block_bytes, base="first")
    role = "input" if direction == "load" else "output"
    return WarpProgram(
        name="stream",
        architecture="sm_90",
        instructions=(
            Instruction(
                op="LDG" if direction == "load" else "STG",
                bytes=block_bytes // parts,
                stream=StreamRef(name="x", parts=parts, part_by_rank=part_by_rank),
            ),
            Instruction(op="LOOP", target=0, level=0, count=Count(value=steps)),
            Instruction(op="NEXT", target=0),
            Instruction(op="EXIT"),
        ),
        roles=(Role(name="mover", first_warp=0, warps=warps, entry=0, registers_per_thread=32),),
        tensors=(Tensor(name="X", shape=(blocks, block_bytes // 2), dtype="fp16", role=role),),
        streams=(stream,),
        work=Work(
            attributes=("first",),
            items=np.arange(items, dtype=np.int64)[:, None] * steps,
            schedule="static",
            grid=grid,
        ),
    )


def gemm_program(
    *,
    m_tiles: int = 4,
    n_tiles: int = 4,
    k_steps: int = 6,
    a_bytes: int = 16384,
    b_bytes: int = 16384,
    c_bytes: int = 32768,
    grid: int = 8,
    schedule: str = "static",
    cluster_size: int = 1,
    order: str = "rows",
) -> WarpProgram:
    """Return a GEMM's memory side: a producer loads an A and a B block a step, a consumer stores a C block."""
    tiles = [(i, j) for i in range(m_tiles) for j in range(n_tiles)]
    if order == "columns":
        tiles = [(i, j) for j in range(n_tiles) for i in range(m_tiles)]
    items = np.array([(i * k_steps, j * k_steps, i * n_tiles + j) for i, j in tiles], dtype=np.int64)
    streams = (
        Stream(name="a", tensor="A", direction="load", blocks=m_tiles * k_steps, block_bytes=a_bytes, base="a"),
        Stream(name="b", tensor="B", direction="load", blocks=n_tiles * k_steps, block_bytes=b_bytes, base="b"),
        Stream(
            name="c", tensor="C", direction="store", blocks=m_tiles * n_tiles, block_bytes=c_bytes, base="c", step=0
        ),
    )
    last = (
        (Instruction(op="NEXT", target=0), Instruction(op="EXIT"))
        if schedule != "launch"
        else (Instruction(op="EXIT"), Instruction(op="EXIT"))
    )
    code = (
        Instruction(op="UTMALDG", bytes=a_bytes, stream=StreamRef(name="a")),
        Instruction(op="UTMALDG", bytes=b_bytes, stream=StreamRef(name="b")),
        Instruction(op="LOOP", target=0, level=0, count=Count(value=k_steps)),
        *last,
        Instruction(op="NOP"),
        Instruction(op="LOOP", target=5, level=0, count=Count(value=k_steps)),
        Instruction(op="UTMASTG", bytes=c_bytes, stream=StreamRef(name="c")),
        *((Instruction(op="NEXT", target=5), last[1]) if schedule != "launch" else last),
    )
    return WarpProgram(
        name="gemm",
        architecture="sm_90",
        instructions=code,
        roles=(
            Role(name="producer", first_warp=0, warps=1, entry=0, registers_per_thread=40),
            Role(name="consumer", first_warp=1, warps=1, entry=5, registers_per_thread=200),
        ),
        tensors=(
            Tensor(name="A", shape=(1, 1), dtype="fp16"),
            Tensor(name="B", shape=(1, 1), dtype="fp16"),
            Tensor(name="C", shape=(1, 1), dtype="fp16", role="output"),
        ),
        streams=streams,
        work=Work(attributes=("a", "b", "c"), items=items, schedule=schedule, grid=grid),
        shared_memory_bytes=200_000,
        cluster_size=cluster_size,
    )
