"""Does misuse of the kernel language give one clear error at the user's line?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from heddle.errors import UserError
from heddle.lang import Builder, kernel

HERE = Path(__file__).name


def start(k: Builder) -> None:
    """Declare work, so that a kernel is complete but for its roles."""
    k.work_items({"row": [0, 128], "k_blocks": [4, 4], "flag": [0, 1]}, clusters=2)


def error_of(write: Callable[[Builder], None], architecture: str = "sm_90") -> UserError:
    """Build a kernel and return the error."""
    with pytest.raises(UserError) as caught:
        kernel(write).build(architecture)
    return caught.value


def line_with(mark: str) -> int:
    """Return the number of the only line of this file that ends with `# mark`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return number


def check(error: UserError, mark: str, message: str) -> None:
    """The error stands at the marked line of this file and says what is expected."""
    assert error.where is not None
    assert (Path(error.where.file).name, error.where.line) == (HERE, line_with(mark))
    assert re.search(message, error.message), error.message


def test_role_inside_role() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32), k.role("b", warps=1, registers=32):  # nested role
            k.sync()

    check(error_of(write), "nested role", "role 'b' is inside role 'a'")


def test_operation_outside_a_role() -> None:
    def write(k: Builder) -> None:
        start(k)
        k.sync()  # no role

    check(error_of(write), "no role", "stands outside every role")


def test_python_if_on_a_symbolic_value() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for i in k.range(4):
                if i == 0:  # symbolic if
                    k.sync()

    error = error_of(write)
    check(error, "symbolic if", "a comparison of a symbolic value is not known while the kernel is built")
    assert "k.when" in error.hint


def test_truth_of_an_item_attribute() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for item in k.work():
                if item.flag:  # symbolic truth
                    k.sync()

    check(error_of(write), "symbolic truth", "the truth of a symbolic value")


def test_break_out_of_a_loop() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for _ in k.range(4):  # left loop
                break
            k.sync()

    check(error_of(write), "left loop", "was left by break or return")


def test_return_out_of_a_loop() -> None:
    def role(k: Builder) -> None:
        for _ in k.work():  # returned loop
            return

    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            role(k)

    check(error_of(write), "returned loop", "was left by break or return")


def test_unknown_item_attribute_names_the_nearest() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for item in k.work():
                for _ in k.range(item.k_block):  # unknown attribute
                    k.sync()

    error = error_of(write)
    check(error, "unknown attribute", "unknown work item attribute 'k_block'; allowed: flag, k_blocks, row")
    assert error.hint == "did you mean 'k_blocks'?"


def test_shapes_of_a_product_disagree() -> None:
    def write(k: Builder) -> None:
        start(k)
        a, b = k.shared("a", (128, 64), "fp16"), k.shared("b", (128, 32), "fp16")
        acc = k.registers("acc", (128, 128), "fp32", warps=(4, 1))
        with k.role("a_role", warps=4, registers=200):
            k.mma(acc, a[:], b[:])  # wrong shapes

    check(error_of(write), "wrong shapes", "the second operand is 128 x 32, expected 128 x 64")


def test_shapes_of_a_store_disagree() -> None:
    def write(k: Builder) -> None:
        start(k)
        out = k.shared("out", (128, 64), "fp16")
        acc = k.registers("acc", (128, 128), "fp32", warps=(4, 1))
        with k.role("a_role", warps=4, registers=200):
            k.fill(acc)
            k.store(out[:], acc)  # wrong store

    check(error_of(write), "wrong store", "the destination is 128 x 64, expected 128 x 128")


def test_undefined_contents() -> None:
    def write(k: Builder) -> None:
        start(k)
        out = k.shared("out", (128, 64), "fp16")
        acc = k.registers("acc", (128, 64), "fp32", warps=(4, 1))
        with k.role("a_role", warps=4, registers=200):
            k.store(out[:], acc)  # never written

    check(error_of(write), "never written", "register tile 'acc' is read before anything is written to it")


def test_name_declared_twice() -> None:
    def write(k: Builder) -> None:
        k.shared("a", (128, 64), "fp16")
        k.ring("a", 4)  # same name

    check(error_of(write), "same name", "'a' is declared already, at ")


def test_unknown_element_type() -> None:
    def write(k: Builder) -> None:
        k.shared("a", (128, 64), "fp17")  # bad type

    check(error_of(write), "bad type", "unknown element type 'fp17'")


def test_tensor_memory_needs_sm_100() -> None:
    def write(k: Builder) -> None:
        k.tensor_memory("acc", (128, 256), "fp32")  # no tensor memory

    check(error_of(write), "no tensor memory", "sm_90 has no tensor memory")


def test_ring_of_another_depth() -> None:
    def write(k: Builder) -> None:
        start(k)
        ring, full = k.ring("ring", 3), k.barrier("full", arrivals=1, stages=4)
        with k.role("a", warps=1, registers=32):
            full.wait(ring)  # other depth

    check(error_of(write), "other depth", "ring 'ring' has 3 stages, barrier 'full' has 4")


def test_two_attributes_in_one_index() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for item in k.work():
                print(item.row + item.flag)  # two attributes

    check(error_of(write), "two attributes", "an index holds one work item attribute")


def test_scaled_attribute() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for item in k.work():
                print(item.row * 128)  # scaled attribute

    check(error_of(write), "scaled attribute", "work item attribute 'row' cannot be multiplied by 128")


def test_loop_that_would_not_run() -> None:
    def write(k: Builder) -> None:
        start(k)
        with k.role("a", warps=1, registers=32):
            for item in k.work():
                for _ in k.range(item.k_blocks - 4):  # zero count
                    k.sync()

    check(error_of(write), "zero count", r"loop 'i0' runs 0 times for a work item")


def test_kernel_is_built_not_called() -> None:
    with pytest.raises(UserError, match=r"is built, not called"):
        kernel(start)(None)


def test_kernel_without_work() -> None:
    def write(k: Builder) -> None:
        with k.role("a", warps=1, registers=32):
            k.sync()

    assert "declares no work items" in error_of(write).message


def test_unequal_columns_of_work() -> None:
    def write(k: Builder) -> None:
        k.work_items({"row": [0, 1], "col": [0]}, clusters=1)  # unequal columns

    check(error_of(write), "unequal columns", "every attribute needs one value for each work item; got row: 2, col: 1")
