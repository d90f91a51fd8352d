"""Two FIBER-threads on one SM, each with resources of its own: shared memory, barriers, registers and bits.

Every FIBER-thread runs the same three roles: a weft copies tiles of X to shared memory, four wefts exponentiate them,
four store what they find in the pool. One alone waits for memory most of the time; two on one SM do not know of each
other and fill each other's waits. Registers are numbered from a FIBER-thread's first one, so their code is the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.lang import Builder, kernel

ROWS, COLS = 64, 64
WEFTS = 4


@kernel
def exponentials(k: Builder, tiles: int, threads: int) -> None:
    """Y = 2^X, tile by tile, on `threads` FIBER-threads: thread t takes tiles t, t + threads, and so on."""
    k.work_items({"row": [ROWS * i for i in range(tiles)]}, clusters=threads)
    x_global = k.tensor("X", (ROWS * tiles, COLS), "fp16")
    y_global = k.tensor("Y", (ROWS * tiles, COLS), "fp32", role="output")
    x_shared = k.shared("x_shared", (ROWS, COLS), "fp16")
    ring = k.ring("ring", 1)
    full, empty = k.barrier("full", arrivals=1), k.barrier("empty", arrivals=WEFTS)
    y = k.pool("y", (ROWS, COLS), "fp32")[0]
    half = k.registers("half", (ROWS, COLS), "fp16", warps=(WEFTS, 1))
    x = k.registers("x", (ROWS, COLS), "fp32", warps=(WEFTS, 1))
    k.set_fiber_num(copy=1, compute=WEFTS, store=WEFTS)

    with k.role("copy", registers=16):
        for item in k.work():
            empty.wait(ring, flip=True)
            full.expect(ring, bytes=x_shared.stage_bytes)
            k.tma_load(x_shared[:], x_global[item.row, 0], full[ring])
            ring.advance()

    with k.role("compute", registers=64):
        for _ in k.work():
            full.wait(ring)
            k.load(half, x_shared[:])
            empty.arrive(ring)
            k.elementwise("cast", x, half)
            k.elementwise("exp2", y, x)
            k.set_busy_bit(y, "full")
            ring.advance()

    with k.role("store", registers=40):
        for item in k.work():
            k.store(y_global[item.row, 0], y)
            k.set_busy_bit(y, "empty")


def expected(x: NDArray) -> NDArray:
    """Return Y."""
    return np.exp2(x)
