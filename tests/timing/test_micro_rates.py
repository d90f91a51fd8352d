"""Does the engine reproduce microbenchmarks? The whole suite: `make slow`, or `heddle validate --suite micro`."""

import dataclasses

import pytest

from heddle.machine import machine
from heddle.study import micro_memory
from heddle.study.micro import MicroRow, micro_rows, run_micro, run_row
from heddle.study.micro_build import Condition
from heddle.study.micro_memory import bulk_step

EXACT = 0.5  # cycles: of rows whose measured value is a whole number
WITHIN = 1.0  # cycles: tcgen05, measured to a tenth


def rows(gpu: str, start: str) -> list[MicroRow]:
    """Return the rows of a GPU whose id begins so."""
    return [row for row in micro_rows(gpu) if row.id.startswith(f"{gpu}-{start}")]


@pytest.mark.parametrize("row", rows("h100", "wgmma-ss") + rows("h100", "wgmma-rs"), ids=lambda row: row.id)
def test_wgmma_is_exact(row: MicroRow) -> None:
    assert run_row(row).simulated == pytest.approx(row.measured, abs=EXACT)


def follows_the_formula(row: MicroRow) -> bool:
    """Tell whether the published formula itself is within a cycle: on 41 of 48 rows, not for pairs with small N."""
    m, n, ctas, form = (row.params[key] for key in ("m", "n", "ctas", "form"))
    return bool(ctas == 1 or n > 96 or (form == "ts" and (m, n) != (128, 64)))


TCGEN05 = [row for row in rows("b200", "tcgen05") if row.probe == "tcgen05_cycles"]


@pytest.mark.parametrize("row", [row for row in TCGEN05 if follows_the_formula(row)], ids=lambda row: row.id)
def test_tcgen05_is_within_a_cycle(row: MicroRow) -> None:
    assert run_row(row).simulated == pytest.approx(row.measured, abs=WITHIN)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
@pytest.mark.parametrize("conflicts", [1, 2])
def test_bank_conflicts_add_whole_cycles(gpu: str, conflicts: int) -> None:
    (row,) = rows(gpu, f"bank-conflict-{conflicts}")
    assert run_row(row).simulated == conflicts


@pytest.mark.parametrize("row", rows("a100", "l2") + rows("a100", "dram-latency"), ids=lambda row: row.id)
def test_memory_latency(row: MicroRow) -> None:
    if row.probe == "load_latency":
        assert abs(run_row(row).error) < 0.03


def test_the_formula_covers_41_of_the_48_published_rows() -> None:
    bf16 = [row for row in TCGEN05 if "dtype" not in row.params]
    assert (len(bf16), sum(map(follows_the_formula, bf16))) == (48, 41)


def test_a_slower_pipe_shows() -> None:
    (row,) = rows("a100", "mufu-rate")
    halved = machine("a100").replace(ops={"MUFU": {"initiation_cycles": 16}})
    slow = run_row(dataclasses.replace(row, board={"ops": {"MUFU": {"initiation_cycles": 16}}}))
    assert halved.ops["MUFU"].initiation_cycles == 16
    assert slow.simulated == pytest.approx(row.measured / 2)


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200"])
def test_the_suite_agrees_as_documented(gpu: str) -> None:
    assert run_micro(gpu).mean_abs_error <= 0.03


def test_bulk_copies_run_until_the_sms_have_drifted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = [row for row in rows("h100", "tma-flight") if row.id.endswith("-12k")]
    simulated = run_row(row).simulated
    monkeypatch.setattr(micro_memory, "COPIES", tuple(3 * count for count in micro_memory.COPIES))
    assert simulated == pytest.approx(run_row(row).simulated, rel=0.03)


def test_bulk_copies_read_no_more_than_the_measured_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_memory, "cycles_each", lambda run, body, setup, lengths: float(max(lengths)))
    b200 = machine("b200")
    copies = bulk_step(Condition(machine=b200, clock_mhz=1965.0), bytes=1 << 17)
    assert copies == (2 << 30) // (b200.sms << 17)


@pytest.mark.parametrize(("gpu", "kernels"), [("a100", 4), ("h100", 3), ("h200", 4)])
def test_streaming_rows_are_the_whole_grid(gpu: str, kernels: int) -> None:
    assert len(rows(gpu, "stream")) == kernels * len((32, 128, 256, 512, 1024))


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["a100", "h100", "b200", "h200"])
def test_rows_beyond_ten_per_cent_give_a_reason(gpu: str) -> None:
    beyond = [result.row.id for result in run_micro(gpu).judged if abs(result.error) > 0.10 and not result.row.reason]
    assert beyond == []
