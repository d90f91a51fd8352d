"""A reduction across wefts through shared registers: no shared memory, no barrier, no shuffle.

Four wefts, one in each subpartition, add up rows of X in registers of their own, and leave their sums in a pool tensor,
each where it is. Two more wefts then read all four quarters from wherever they lie: one adds them up, the other looks
for the largest. Full and empty bits order all of it: a datum is held for both readers, and each gives it back.
"""

from __future__ import annotations

from numpy.typing import NDArray

from heddle.lang import Builder, RegisterHandle, kernel

COLS = 64
WEFTS = 4
WEFT_ROWS = {"sm_80": 16, "sm_90": 16, "sm_100": 32}
"""Rows of a tile that a weft holds, by architecture."""
TWICE = 2
"""Items: the second one shows that the registers are given back."""


def over_wefts(k: Builder, function: str, result: RegisterHandle, parts: RegisterHandle) -> None:
    """Combine the four quarters of a pool tensor, two from another subpartition in one instruction."""
    k.elementwise(function, result, parts.quarter(0), parts.quarter(1))
    for other in range(2, WEFTS):
        k.elementwise(function, result, result, parts.quarter(other))
    k.set_busy_bit(parts, "empty")


@kernel
def reduce_wefts(k: Builder, tiles: int) -> None:
    """S[q] = the sum over the tiles of a weft's rows; Total = the sum of all four S[q], Highest their maximum."""
    weft_rows = WEFT_ROWS[k.architecture]
    rows = WEFTS * weft_rows
    height = rows * tiles
    k.work_items(
        {"first": [height * i for i in range(TWICE)], "out": [weft_rows * i for i in range(TWICE)]}, clusters=1
    )
    x_global = k.tensor("X", (height * TWICE, COLS), "fp32")
    total_global = k.tensor("Total", (weft_rows * TWICE, COLS), "fp32", role="output")
    highest_global = k.tensor("Highest", (weft_rows * TWICE, COLS), "fp32", role="output")
    parts = k.pool("parts", (rows, COLS), "fp32", read_by="all")[0]
    x, own = (k.registers(name, (rows, COLS), "fp32", warps=(WEFTS, 1)) for name in ("x", "own"))
    total, highest = (k.registers(name, (weft_rows, COLS), "fp32", warps=(1, 1)) for name in ("total", "highest"))
    k.set_fiber_num(begin=1, add=WEFTS, total=1, highest=1)

    with k.role("begin", registers=16):
        pass

    with k.role("add", window=0, registers=160):
        for item in k.work():
            k.fill(own)
            for i in k.range(tiles):
                k.load(x, x_global[item.first + i * rows, 0])
                k.elementwise("add", own, own, x)
            k.elementwise("copy", parts, own)
            k.set_busy_bit(parts, "full")

    with k.role("total", window=1, registers=96):
        for item in k.work():
            over_wefts(k, "add", total, parts)
            k.store(total_global[item.out, 0], total)

    with k.role("highest", window=1, registers=96):
        for item in k.work():
            over_wefts(k, "max", highest, parts)
            k.store(highest_global[item.out, 0], highest)


def expected(x: NDArray, tiles: int) -> dict[str, NDArray]:
    """Return Total and Highest of X."""
    sums = x.reshape(TWICE, tiles, WEFTS, -1, COLS).sum(axis=1)
    return {"Total": sums.sum(axis=1).reshape(-1, COLS), "Highest": sums.max(axis=1).reshape(-1, COLS)}
