"""A warp-specialised GEMM as a warp program: a producer warp with bulk copies, wgmma warp groups, a ring between."""

from __future__ import annotations

import numpy as np

from heddle.ir.warp import (
    Barrier,
    BarrierRef,
    Count,
    Instruction,
    Register,
    Ring,
    Role,
    Stream,
    StreamRef,
    Tensor,
    WarpProgram,
    Work,
)

TILE_K = 64  # columns of an operand block
BYTES = 2  # of an fp16 element
ROWS = 64  # rows of a warp group's tile
FULL = BarrierRef(name="full", ring="stage")
EMPTY = BarrierRef(name="empty", ring="stage")
FREE = BarrierRef(name="empty", ring="stage", flip=True)


def _producer(k_steps: int, a_bytes: int, b_bytes: int) -> list[Instruction]:
    return [
        Instruction(op="SYNCS.TRYWAIT", barrier=FREE),
        Instruction(op="SYNCS.EXPECT", barrier=FULL, bytes=a_bytes + b_bytes),
        Instruction(op="UTMALDG", bytes=a_bytes, stream=StreamRef(name="a"), barrier=FULL),
        Instruction(op="UTMALDG", bytes=b_bytes, stream=StreamRef(name="b"), barrier=FULL, advance=("stage",)),
        Instruction(op="LOOP", target=0, level=0, count=Count(value=k_steps)),
    ]


def _consumer(entry: int, k_steps: int, n: int, warps: int, c_bytes: int) -> list[Instruction]:
    mma = Instruction(op="HGMMA", shape=(ROWS, n, 16), form="ss", dtype="fp16", dst=Register(24, n // 2))
    return [
        Instruction(op="SYNCS.TRYWAIT", barrier=FULL),
        *[mma] * (TILE_K // 16),
        Instruction(op="WARPGROUP.COMMIT"),
        Instruction(op="WARPGROUP.DEPBAR", pending=0),
        Instruction(op="SYNCS.ARRIVE", barrier=EMPTY, advance=("stage",)),
        Instruction(op="LOOP", target=entry, level=0, count=Count(value=k_steps)),
        Instruction(op="BAR.SYNC", warps=warps, barrier_id=1),
        Instruction(op="UTMASTG", bytes=c_bytes, stream=StreamRef(name="c"), by="role"),
        Instruction(op="UTMACMDFLUSH", by="role"),
        Instruction(op="UTMADEPBAR", by="role"),
    ]


def ring_gemm(
    *,
    m_tiles: int,
    n_tiles: int,
    k_steps: int,
    grid: int,
    n: int = 128,
    groups: int = 2,
    stages: int = 4,
    schedule: str = "static",
) -> WarpProgram:
    """Return a GEMM of m_tiles x n_tiles tiles of (64 * groups) x n, k_steps steps of 64, row by row of tiles."""
    m, warps = ROWS * groups, 4 * groups
    a_bytes, b_bytes, c_bytes = m * TILE_K * BYTES, n * TILE_K * BYTES, m * n * BYTES
    tiles = [(i * k_steps, j * k_steps, i * n_tiles + j) for i in range(m_tiles) for j in range(n_tiles)]
    code: list[Instruction] = []
    entries = []
    for role in (_producer(k_steps, a_bytes, b_bytes), None):
        entry = len(code)
        entries.append(entry)
        code += role or _consumer(entry, k_steps, n, warps, c_bytes)
        if schedule != "launch":
            code.append(Instruction(op="NEXT", target=entry))
        code.append(Instruction(op="EXIT"))
    return WarpProgram(
        name="ring_gemm",
        architecture="sm_90",
        instructions=tuple(code),
        roles=(
            Role(name="consumer", first_warp=0, warps=warps, entry=entries[1], registers_per_thread=200),
            Role(name="producer", first_warp=warps, warps=1, entry=entries[0], registers_per_thread=40),
        ),
        rings=(Ring(name="stage", depth=stages),),
        barriers=(
            Barrier(name="full", count=stages, arrivals=1),
            Barrier(name="empty", count=stages, arrivals=warps),
        ),
        tensors=(
            Tensor(name="A", shape=(m_tiles * m, k_steps * TILE_K), dtype="fp16"),
            Tensor(name="B", shape=(n_tiles * n, k_steps * TILE_K), dtype="fp16"),
            Tensor(name="C", shape=(m_tiles * m, n_tiles * n), dtype="fp16", role="output"),
        ),
        streams=(
            Stream(name="a", tensor="A", direction="load", blocks=m_tiles * k_steps, block_bytes=a_bytes, base="a"),
            Stream(name="b", tensor="B", direction="load", blocks=n_tiles * k_steps, block_bytes=b_bytes, base="b"),
            Stream(name="c", tensor="C", direction="store", blocks=len(tiles), block_bytes=c_bytes, base="c", step=0),
        ),
        work=Work(attributes=("a", "b", "c"), items=np.array(tiles, dtype=np.int64), schedule=schedule, grid=grid),
        shared_memory_bytes=stages * (a_bytes + b_bytes) + c_bytes,
    )
