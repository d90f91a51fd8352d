"""Is it said of every number that no public measurement checks, and of no other?"""

from __future__ import annotations

import csv

import pytest

from heddle.kernels.registry import entries, find_entry
from heddle.machine.load import machine
from heddle.metrics.render import headline
from heddle.report.comparison import not_validated
from heddle.study.case_file import OWN_CASES
from heddle.study.unvalidated import names, rows, unvalidated


def forward(row: dict[str, str]) -> bool:
    """Return whether a row is of a kernel, and of its forward pass where it has a backward pass."""
    return "kernel" in row and row.get("direction", "fwd") in ("", "fwd")


def measured() -> set[tuple[str, str]]:
    """Return kernel and GPU of the shipped cases, but of those with a backward pass."""
    found = set()
    for path in OWN_CASES.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            found |= {(row["kernel"], row["gpu"]) for row in csv.DictReader(file) if forward(row)}
    return found


def test_rows_name_kernels_that_exist() -> None:
    for row in rows():
        assert row["reason"]
        for kernel in names(row.get("kernel", ())):
            find_entry(kernel)


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200"])
def test_every_kernel_has_measured_cases_or_a_reason(gpu: str) -> None:
    device, known = machine(gpu), measured()
    for name, found in entries().items():
        if device.architecture in found.architectures:
            assert bool(unvalidated(name, device, found.check({}))) == ((name, gpu) not in known), name


def test_a_gated_product_is_unvalidated_and_a_plain_one_is_not() -> None:
    assert "gated" in unvalidated("gemm", machine("h100"), {"epilogue": "silu_mul"})
    assert unvalidated("gemm", machine("h100"), {"epilogue": "none"}) == ""


def test_the_same_gpu_with_other_features_has_the_reasons_of_its_own_name() -> None:
    device = machine("h200")
    assert unvalidated("gemm", device.replace(name="h200+fiber"), {}) == unvalidated("gemm", device, {}) != ""


def test_the_reason_is_printed_with_the_numbers() -> None:
    row = {"kernel": "ffn", "gpu": "h100", "mode": "simt", "params": {}, "time_us": 1.0, "tflops": 1.0, "cycles": 1,
           "clock_mhz": 1.0, "provenance": {"clock_source": "given"}}  # fmt: skip
    assert "unvalidated" not in headline(row)
    assert headline({**row, "unvalidated": "nothing is known"}).endswith("unvalidated: nothing is known")


def test_the_table_of_all_comparisons_has_each_reason_once_with_its_cases() -> None:
    lines = [{"case": case, "gpu": "h100", "baseline": {"unvalidated": why}} for case, why in
             (("a", "no row"), ("b", ""), ("c", "no row"))]  # fmt: skip
    assert not_validated([*lines, {"case": "d", "gpu": "h100", "failed": "too large"}]) == ["unvalidated: a, c: no row"]
