"""What do operations of Blackwell become: packed arithmetic, polynomials, tensor memory as operand, scheduled runs?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.interp import check
from heddle.interp._arithmetic import polynomial_exp2
from heddle.ir.warp import Instruction, WarpProgram
from heddle.lang import Builder, RegisterHandle, kernel
from heddle.machine import machine
from heddle.passes import PASSES, compile_program, run_passes

B200 = machine("b200")
ROWS, COLS = 128, 32


def program(body: Callable[[Builder, RegisterHandle], None], passes: Any = PASSES) -> WarpProgram:
    """Four warps that load a tile (a row a lane), do something with it, and store it."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        source = k.tensor("X", (ROWS, COLS), "fp32")
        target = k.tensor("Y", (ROWS, COLS), "fp32", role="output")
        tile = k.registers("tile", (ROWS, COLS), "fp32", warps=(4, 1))
        with k.role("worker", warps=4, registers=128):
            for item in k.work():
                k.load(tile, source[item.row, 0])
                body(k, tile)
                k.store(target[item.row, 0], tile)

    return run_passes(small.build("sm_100"), B200, passes=passes)


def ops(body: Callable[[Builder, RegisterHandle], None]) -> Counter[str]:
    """How often each opcode is emitted beyond a program that only loads and stores."""
    return Counter(i.op for i in program(body).instructions) - Counter(
        i.op for i in program(lambda k, tile: None).instructions
    )


def outcome(body: Callable[[Builder, RegisterHandle], None], x: np.ndarray) -> np.ndarray:
    """What the program makes of a tile."""
    report = check(program(body), B200, {"X": x}, {"Y": np.zeros((ROWS, COLS))})
    assert report.hazards == ()
    return report.tensors["Y"]


def data(low: float, high: float) -> np.ndarray:
    """A tile of random numbers."""
    return np.random.default_rng(0).uniform(low, high, (ROWS, COLS)).astype(np.float32)


def column(k: Builder, name: str) -> RegisterHandle:
    """A tile of one column."""
    return k.registers(name, (ROWS, 1), "fp32", warps=(4, 1))


@pytest.mark.parametrize(("function", "opcode"), [("add", "FADD2"), ("mul", "FMUL2"), ("scaled_sub", "FFMA2")])
def test_two_elements_share_an_instruction(function: str, opcode: str) -> None:
    scalars = (2.0,) if function == "scaled_sub" else ()
    counts = ops(lambda k, tile: k.elementwise(function, tile, tile, tile, scalars=scalars))
    assert counts[opcode] == COLS // 2


def test_a_column_is_one_source_for_both_elements() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        three = column(k, "three")
        k.fill(three, 3.0)
        k.elementwise("mul", tile, tile, three)

    row = next(i for i in program(body).instructions if i.op == "FMUL2")
    assert [register.count for register in row.src] == [2, 1]
    assert np.allclose(outcome(body, data(-1, 1)), 3 * data(-1, 1))


def test_columns_of_a_tile_can_be_written_alone() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        k.elementwise("scale", tile.columns(8, 16), tile.columns(0, 16), scalars=(2.0,))

    x = data(-1, 1)
    expected = x.copy()
    expected[:, 8:24] = 2 * x[:, :16]
    assert np.array_equal(outcome(body, x), expected)


def test_columns_beyond_the_tile_are_refused() -> None:
    with pytest.raises(UserError, match="do not lie inside register tile"):
        program(lambda k, tile: k.elementwise("copy", tile.columns(24, 16), tile.columns(0, 16)))


def test_a_polynomial_takes_six_packed_and_four_other_operations_for_two_elements() -> None:
    counts = ops(lambda k, tile: k.elementwise("exp2_mixed", tile, tile, scalars=(2, 2)))
    pairs = COLS // 2
    assert {op: n // pairs for op, n in counts.items()} == {"FMNMX": 2, "FADD2": 3, "FFMA2": 3, "LEA": 2}


def test_of_each_period_the_last_columns_use_the_polynomial() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        k.elementwise("exp2_mixed", tile, tile, scalars=(16, 4))

    x = data(-30, 0)
    got, polynomial = outcome(body, x), np.arange(COLS) % 16 >= 12
    assert np.array_equal(got[:, polynomial], polynomial_exp2(x)[:, polynomial])
    assert np.array_equal(got[:, ~polynomial], np.exp2(x)[:, ~polynomial])
    assert ops(body)["MUFU"] == np.count_nonzero(~polynomial)


def test_the_polynomial_is_as_exact_as_published() -> None:
    x = np.linspace(-100, 20, 400_001, dtype=np.float32)
    assert np.abs(polynomial_exp2(x) / np.exp2(x.astype(np.float64)) - 1).max() < 8.8e-5


def test_a_scaled_exponential_by_polynomial_has_the_right_numbers() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        k.elementwise("exp2_poly_scaled_sub", tile, tile, tile, scalars=(3.0,))

    assert np.allclose(outcome(body, data(-5, 0)), np.exp2(2 * data(-5, 0)), rtol=1e-4)
    assert ops(body)["MUFU"] == 0


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_row_maximum_takes_two_elements_an_instruction(accumulate: bool) -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        highest = column(k, "highest")
        k.fill(highest, 0.5)
        k.row_reduce("max", highest, tile, accumulate=accumulate)
        k.elementwise("sub", tile, tile, highest)

    x = data(-1, 1)
    assert ops(body)["FMNMX3"] == COLS // 2 - (3 if not accumulate else 2)
    largest = x.max(axis=1, keepdims=True)
    assert np.allclose(outcome(body, x), x - (np.maximum(largest, 0.5) if accumulate else largest))


def test_a_row_sum_adds_pairs() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        total = column(k, "total")
        k.fill(total, 2.0)
        k.row_reduce("sum", total, tile, accumulate=True)
        k.elementwise("sub", tile, tile, total)

    x = data(-1, 1)
    counts = ops(body)
    assert (counts["FADD"], counts["FADD2"]) == (2, COLS // 2 - 1 + COLS // 2)  # the subtraction is packed, too
    assert np.allclose(outcome(body, x), x - 2 - x.sum(axis=1, keepdims=True), atol=1e-5)


def test_a_mask_moves_seven_bits_at_a_time() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        k.mask(tile, causal=True, limit=20, value=0.0)

    counts = ops(body)
    assert (counts["FSEL"], counts["R2P"]) == (COLS, -(-COLS // 7))
    got = outcome(body, data(1, 2))
    assert np.array_equal(got != 0, (np.arange(COLS) < 20) & (np.arange(COLS) <= np.arange(ROWS)[:, None]))


def stored(k: Builder, tile: RegisterHandle) -> None:
    """A round trip through tensor memory, in two stores of which the second waits."""
    memory = k.tensor_memory("memory", (ROWS, COLS), "fp32")
    k.store(memory[:].columns(0, 16), tile.columns(0, 16), wait=False)
    k.store(memory[:].columns(16, 16), tile.columns(16, 16))
    k.load(tile, memory[:])


def rows_of(op: str, rows: tuple[Instruction, ...]) -> list[Instruction]:
    """The instructions of an opcode."""
    return [row for row in rows if row.op == op]


def test_registers_come_back_from_tensor_memory() -> None:
    assert np.array_equal(outcome(stored, data(-1, 1)), data(-1, 1))


def test_one_wait_covers_all_stores_to_tensor_memory() -> None:
    rows = program(stored).instructions
    stores = rows_of("STTM", rows)
    assert [row.bytes for row in stores] == [32 * 4 * 16] * 2
    wait = rows_of("FENCE.TM", rows)[0]
    assert {row.control.write_barrier for row in stores} <= wait.control.wait
    assert rows.index(stores[-1]) < rows.index(wait) < rows.index(rows_of("LDTM", rows)[0])


def test_exponentials_and_what_follows_them_are_interleaved() -> None:
    def body(k: Builder, tile: RegisterHandle) -> None:
        k.elementwise("scaled_sub", tile, tile, tile, scalars=(0.5,))
        k.elementwise("exp2", tile, tile)
        k.elementwise("scale", tile, tile, scalars=(2.0,))

    plain = tuple(p for p in PASSES if p[0] != "schedule")
    orders = []
    for passes in (plain, PASSES):
        order = [i.op for i in program(body, passes).instructions if i.op in ("FFMA2", "MUFU", "FMUL2")]
        orders.append(order)
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0].index("MUFU") == COLS // 2
    assert orders[1].index("MUFU") < COLS // 2
    assert orders[1].index("FMUL2") < len(orders[1]) - COLS // 2
    assert np.allclose(outcome(body, data(-1, 1)), 2 * np.exp2(-0.5 * data(-1, 1)), rtol=1e-6)


def product() -> WarpProgram:
    """P V with P in tensor memory, written by four warps."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        x = k.tensor("X", (ROWS, 64), "fp16")
        v_global = k.tensor("V", (64, 64), "fp16")
        y = k.tensor("Y", (ROWS, 64), "fp32", role="output")
        v = k.shared("v", (64, 64), "fp16")
        acc = k.tensor_memory("acc", (ROWS, 64), "fp32")
        p = k.tensor_memory("p", (ROWS, 64), "fp16")
        tile = k.registers("tile", (ROWS, 64), "fp16", warps=(4, 1))
        out = k.registers("out", (ROWS, 64), "fp32", warps=(4, 1))
        ready, loaded, done = (k.barrier(n, arrivals=a) for n, a in (("ready", 4), ("loaded", 1), ("done", 1)))
        with k.role("worker", warps=4, registers=128):
            k.sync()
            for item in k.work():
                k.load(tile, x[item.row, 0])
                k.store(p[:], tile)
                ready.arrive()
                done.wait()
                k.load(out, acc[:])
                k.store(y[item.row, 0], out)
        with k.role("matrix", warps=1, registers=128):
            k.sync()
            for item in k.work():
                loaded.expect(bytes=v.stage_bytes)
                k.tma_load(v[:], v_global[item.row, 0], loaded[:])
                loaded.wait()
                ready.wait()
                k.mma(acc[:], p[:], v[:], accumulate=False, transposed=True)
                k.mma_commit(done[:])

    return compile_program(small.build("sm_100"), B200)


def test_an_operand_in_tensor_memory_needs_no_shared_memory() -> None:
    compiled = product()
    rows = rows_of("UTCHMMA", compiled.instructions)
    assert {(row.form, row.shape) for row in rows} == {("ts", (128, 64, 16))}
    assert len(rows) == 64 // 16
    generator = np.random.default_rng(1)
    x, v = (generator.standard_normal(shape).astype(np.float16) for shape in ((ROWS, 64), (64, 64)))
    expected = x.astype(np.float64) @ v.astype(np.float64)
    report = check(compiled, B200, {"X": x, "V": v}, {"Y": expected})
    assert report.ok, report.errors


def test_a_register_operand_is_refused() -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        tile = k.registers("tile", (ROWS, 16), "fp16", warps=(1, 1))
        with k.role("matrix", warps=1, registers=128):
            k.fill(tile)
            k.mma(k.tensor_memory("acc", (ROWS, 64), "fp32")[:], tile, k.shared("b", (64, 16), "fp16")[:])

    with pytest.raises(UserError, match="it must be in shared or tensor memory"):
        compile_program(small.build("sm_100"), B200)


def test_tiles_over_the_same_columns_take_no_more_of_them() -> None:
    def columns(overlays: bool) -> int:
        @kernel
        def small(k: Builder) -> None:
            k.work_items({"row": [0]}, clusters=1)
            scores = k.tensor_memory("s", (ROWS, 128), "fp32", stages=2)
            k.tensor_memory("p", (ROWS, 128), "fp16", stages=2, overlays=scores if overlays else None, overlay_col=0)
            with k.role("worker", warps=1, registers=32):
                k.sync()

        return compile_program(small.build("sm_100"), B200).tensor_memory_columns

    assert (columns(True), columns(False)) == (256, 512)


@pytest.mark.parametrize(("cols", "stages", "overlay_col"), [(128, 1, 1), (66, 1, 32), (64, 2, 0)])
def test_a_tile_that_sticks_out_of_what_it_overlays_is_refused(cols: int, stages: int, overlay_col: int) -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        scores = k.tensor_memory("s", (ROWS, 64), "fp32")
        k.tensor_memory("p", (ROWS, cols), "fp16", stages=stages, overlays=scores, overlay_col=overlay_col)
        with k.role("worker", warps=1, registers=32):
            k.sync()

    with pytest.raises(UserError, match="does not lie inside 's'"):
        small.build("sm_100")
