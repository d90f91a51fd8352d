"""Fibers of one weft part and meet again: rows that have data are computed from X, the others take a default.

Four wefts of one role have 32 fibers each. Item by item, the first `valid` fibers load their rows of X and
exponentiate them; the others load theirs from another tensor. A weft that has both kinds runs one path after the other.
While the load of one path is on its way the other path runs: each path goes on where it was (independent thread
scheduling). `scale` comes through a pool tensor, which the weft reads while all its fibers are together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.lang import Builder, kernel

ROWS, COLS = 64, 64
"""Of a tile: 16 rows for each of four wefts."""
WEFTS = 4
ROW_FIBERS = 4
"""Neighbouring fibers that share a row of a tile."""


@kernel
def ragged_exponential(k: Builder, valid: list[int]) -> None:
    """Y = 2^X * scale for the rows of the first `valid[i]` fibers of tile i, the default elsewhere."""
    tiles = len(valid)
    k.work_items({"row": [ROWS * i for i in range(tiles)], "valid": valid}, clusters=1)
    x_global = k.tensor("X", (ROWS * tiles, COLS), "fp32")
    default = k.tensor("D", (ROWS * tiles, COLS), "fp32")
    scale_global = k.tensor("scale", (ROWS * tiles, COLS), "fp32")
    y_global = k.tensor("Y", (ROWS * tiles, COLS), "fp32", role="output")
    scale = k.pool("scale_pool", (ROWS, COLS), "fp32")[0]
    x = k.registers("x", (ROWS, COLS), "fp32", warps=(WEFTS, 1))
    own = k.registers("own", (ROWS, COLS), "fp32", warps=(WEFTS, 1))
    k.set_fiber_num(begin=1, load=WEFTS, compute=WEFTS)

    with k.role("begin", registers=16):
        pass

    with k.role("load", window=0, registers=32):
        for item in k.work():
            k.load(scale, scale_global[item.row, 0])
            k.set_busy_bit(scale, "full")

    with k.role("compute", window=1, registers=128):
        for item in k.work():
            k.elementwise("copy", own, scale)
            k.set_busy_bit(scale, "empty")
            with k.fibers(first=item.valid):
                k.load(x, x_global[item.row, 0])
                k.elementwise("exp2", x, x)
                k.elementwise("mul", x, x, own)
            with k.other_fibers():
                k.load(x, default[item.row, 0])
            k.store(y_global[item.row, 0], x)


def expected(x: NDArray, default: NDArray, scale: NDArray, valid: list[int]) -> NDArray:
    """Return Y, computed by rows: row r of a weft's 16 belongs to fibers 4 (r mod 8) to 4 (r mod 8) + 3."""
    row = np.arange(x.shape[0]) % ROWS
    fiber = 32 * (row // (ROWS // WEFTS)) + ROW_FIBERS * (row % 8)
    computed = fiber < np.repeat(valid, ROWS)
    return np.where(computed[:, None], np.exp2(x) * scale, default)
