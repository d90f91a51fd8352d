"""Is it said of every number, and of no other, that nothing public checks it, and what its baseline lacks?"""

from __future__ import annotations

import csv

import pytest

from heddle.kernels.registry import entries, find_entry
from heddle.machine.load import machine
from heddle.metrics.render import headline
from heddle.report.comparison import heading, remarks_of
from heddle.study.case_file import OWN_CASES
from heddle.study.unvalidated import BASELINES, baseline_note, names, rows, several, unvalidated


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
    assert remarks_of([*lines, {"case": "d", "gpu": "h100", "failed": "too large"}]) == ["* unvalidated: a, c: no row"]


def test_notes_on_baselines_name_kernels_parameters_and_values_that_exist() -> None:
    for row in rows(BASELINES):
        assert row["note"]
        for kernel in names(row["kernel"]):
            for name, value in row.get("where", {}).items():
                assert [find_entry(kernel).check({name: each}) for each in several(value)]


@pytest.mark.parametrize(("kernel", "gpu", "given", "text"), [
    ("attention", "b200", {"direction": "bwd"}, ""),
    ("attention", "b200", {}, ""),
    ("attention", "h100", {"direction": "bwd"}, "main.dq=bulk"),
    ("attention_bwd", "h100", {}, "dq=bulk"),
    ("attention", "a100", {"direction": "bwd"}, ""),
    ("w4a16", "h100", {"implementation": "mma.sync"}, "over the one by wgmma"),
    ("w4a16", "h100", {}, ""),
    ("w4a16", "b200", {"implementation": "mma.sync"}, "by tcgen05"),
    ("w4a16", "b200", {"group": 64}, "groups of 64"),
    ("w4a16", "b200", {}, ""),
    ("w4a16", "a100", {"implementation": "mma.sync"}, ""),
    ("ffn", "h100", {"weights": "awq"}, ""),
    ("llama", "b200", {"precision": "w4a16"}, ""),
    ("llama", "b200", {"phase": "decode"}, ""),
    ("decode_attention", "b200", {}, ""),
    ("decode_attention", "b200", {"implementation": "fa2"}, "by default they are FlashAttention 4's where"),
    ("decode_attention", "b200", {"implementation": "fa4"}, "by default they are the code for A100 where"),
    ("decode_split", "b200", {}, "decode_split_fa4"),
    ("decode_attention", "h100", {}, ""),
])  # fmt: skip
def test_a_note_stands_beside_each_baseline_that_is_not_the_best_known(
    kernel: str, gpu: str, given: dict[str, str], text: str
) -> None:
    found = baseline_note(kernel, machine(gpu), find_entry(kernel).check(given))
    assert text in found
    assert bool(text) == bool(found)


def test_all_notes_that_fit_are_said() -> None:
    params = find_entry("decode_attention").check({"implementation": "fa2", "head_dim": 256})
    found = baseline_note("decode_attention", machine("b200"), params)
    assert "asked for by implementation=fa2" in found
    assert "of this head size" in found


def test_a_comparison_is_headed_by_the_note_on_its_baseline() -> None:
    row = {"kernel": "w4a16", "gpu": "h100", "params": {}, "clock_mhz": 1.0, "baseline": {"baseline_note": "slow"}}
    assert heading(row).endswith("of the baseline: slow")


def test_a_note_on_a_baseline_has_its_cases_by_gpu() -> None:
    lines = [{"case": "AWQ", "gpu": gpu, "baseline": {"unvalidated": "no row", "baseline_note": "slow"}}
             for gpu in ("h100", "b200")]  # fmt: skip
    assert remarks_of(lines) == ["* unvalidated: AWQ: no row", "of the baseline: AWQ (h100), AWQ (b200): slow"]
