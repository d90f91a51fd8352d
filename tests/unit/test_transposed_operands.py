"""Are operands that lie the other way round, stores that turn a tile and row vectors beside fragments executed right?

One small kernel: acc[m, n] = A^T B, less a row vector, masked along columns, then stored transposed.
"""

from __future__ import annotations

import numpy as np
import pytest

from heddle import interp, pipeline
from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.lang import Builder, kernel
from heddle.machine import machine

ROWS, COLS, DEPTH = 64, 80, 32
LIMIT, DIAGONAL = 50, -3
SEED = 5


@kernel
def turned(k: Builder, causal: bool) -> None:
    """OUT [cols, rows] = (A^T B^T - V, masked)^T by one warp group, and SUM in the order of the threads."""
    k.work_items({"row": [0]}, clusters=1)
    a_global = k.tensor("A", (DEPTH, ROWS), "fp16")
    b_global = k.tensor("B", (COLS, DEPTH), "fp16")
    vector_global = k.tensor("V", (1, COLS), "fp32")
    out_global = k.tensor("OUT", (COLS, ROWS), "fp16", role="output")
    sum_global = k.tensor("SUM", (COLS, ROWS), "fp32", role="output")
    a, b = k.shared("a", (DEPTH, ROWS), "fp16"), k.shared("b", (COLS, DEPTH), "fp16")
    vector = k.shared("v", (1, COLS), "fp32", swizzle_bytes=0)
    out = k.shared("out", (COLS, ROWS), "fp16")
    total = k.shared("sum", (COLS, ROWS), "fp32", swizzle_bytes=0)
    full = k.barrier("full", arrivals=1)
    acc = k.registers("acc", (ROWS, COLS), "fp32", warps=(4, 1))
    values = k.registers("values", (1, COLS), "fp32", warps=(4, 1), spread="columns")
    narrow = k.registers("narrow", (ROWS, COLS), "fp16", warps=(4, 1), overlays=acc)
    with k.role("group", warps=4, registers=128):
        k.sync()
        for _ in k.work():
            full.wait()
            k.mma(acc, a[:], b[:], accumulate=False, a_transposed=True)
            k.mma_commit()
            k.load(values, vector[:])
            k.mma_wait(pending=0)
            k.elementwise("sub", acc, acc, values)
            k.mask(acc, causal=causal, limit=LIMIT, diagonal=DIAGONAL, value=0.0, transposed=True)
            k.store(total[:], acc, transposed=True, thread_order=True)
            k.elementwise("cast", narrow, acc)
            k.store(out[:], narrow, transposed=True)
            k.fence()
            k.sync(1)
            k.tma_store(out_global[0, 0], out[:])
            k.tma_store(sum_global[0, 0], total[:], reduce=True)
            k.tma_store_wait(pending=0)
    with k.role("loader", warps=1, registers=32):
        k.sync()
        for _ in k.work():
            full.expect(bytes=a.stage_bytes + b.stage_bytes + vector.stage_bytes)
            for box, source in ((a, a_global), (b, b_global), (vector, vector_global)):
                k.tma_load(box[:], source[0, 0], full[:])


@pytest.mark.parametrize("causal", [False, True])
def test_a_turned_product_is_right(*, causal: bool) -> None:
    draw = np.random.default_rng(SEED)
    a, b = (draw.standard_normal(shape).astype("f2").astype("f8") for shape in ((DEPTH, ROWS), (COLS, DEPTH)))
    vector, start = draw.standard_normal((1, COLS)), draw.standard_normal((COLS, ROWS))
    keys, queries = np.arange(ROWS)[:, None], np.arange(COLS)[None, :]
    keep = (keys < LIMIT) & ((keys <= queries + DIAGONAL) | (not causal))
    expected = np.where(keep, a.T @ b.T - vector, 0.0).T
    h100 = machine("h100")
    program = pipeline.warp_program(turned.build("sm_90", causal), h100)
    report = interp.check(
        program, h100, {"A": a, "B": b, "V": vector, "SUM": start}, {"OUT": expected, "SUM": start + expected}
    )
    assert report.ok, report.lines()


def _bad(what: str) -> TileProgram:
    @kernel
    def bad(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        wide = k.registers("wide", (64, 64), "fp32", warps=(4, 1))
        vector = k.registers("vector", (1, 64), "fp32", warps=(4, 1), spread="columns")
        shared, bytes_ = k.shared("s", (64, 64), "fp32"), k.shared("b", (64, 64), "fp8_e4m3")
        with k.role("group", warps=4, registers=128):
            k.fill(wide)
            if what == "fill":
                k.fill(vector)
            elif what == "fp32 transposed":
                k.store(shared[:], wide, transposed=True)
            elif what == "fp8 product":
                k.mma(wide, bytes_[:], bytes_[:], a_transposed=True)
            elif what == "narrow order":
                k.store(bytes_[:], wide, thread_order=True)

    return bad.build("sm_90")


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("fill", "spread by columns; Fill does not take it"),
        ("fp32 transposed", "a transposed store is of 16-bit elements"),
        ("fp8 product", "a transposed first operand lies in shared memory and is of a 16-bit type"),
        ("narrow order", "thread_order stores 32-bit elements"),
    ],
)
def test_what_does_not_exist_is_refused_at_its_line(what: str, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        _bad(what)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
