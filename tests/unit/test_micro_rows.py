"""Are the rows of the micro suite complete, sourced, and runnable as written?"""

import inspect
from pathlib import Path

import pytest

from heddle.errors import UserError
from heddle.machine import machine
from heddle.machine.load import sources
from heddle.study.micro import PROBES, MicroReport, MicroResult, MicroRow, available, micro_rows

ROOT = Path(__file__).resolve().parents[2]
GPUS = available()


def test_every_preset_has_rows() -> None:
    assert GPUS == ["a100", "b200", "h100", "h200"]


@pytest.mark.parametrize(("gpu", "rows"), [("a100", 30), ("h100", 30), ("b200", 30), ("h200", 10)])
def test_there_are_enough_rows(gpu: str, rows: int) -> None:
    assert len(micro_rows(gpu)) >= rows


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_at_least_twelve_rows_are_no_echo(gpu: str) -> None:
    assert sum(not row.echo for row in micro_rows(gpu)) >= 12


@pytest.mark.parametrize("gpu", GPUS)
def test_ids_are_unique(gpu: str) -> None:
    ids = [row.id for row in micro_rows(gpu)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("gpu", GPUS)
def test_every_row_has_a_public_source(gpu: str) -> None:
    assert [row.id for row in micro_rows(gpu) if row.source not in sources().values()] == []


@pytest.mark.parametrize("gpu", GPUS)
def test_every_probe_takes_the_parameters_of_its_rows(gpu: str) -> None:
    for row in micro_rows(gpu):
        inspect.signature(PROBES[row.probe]).bind(None, **row.params)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_board_is_a_legal_machine(gpu: str) -> None:
    for row in micro_rows(gpu):
        machine(gpu).replace(**row.board)


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(UserError, match="unknown GPU with micro rows 'v100'; allowed: a100, b200, h100, h200"):
        micro_rows("v100")


def row(unit: str, measured: float, echo: bool = False) -> MicroRow:
    """Return a row for arithmetic on errors."""
    return MicroRow(
        id="x", gpu="h100", quantity="", measured=measured, unit=unit, source="", probe="dependent", echo=echo
    )


def test_an_error_is_positive_when_the_simulation_is_too_slow() -> None:
    assert MicroResult(row=row("cycles", 10.0), simulated=11.0).error == pytest.approx(0.1)
    assert MicroResult(row=row("GB/s", 11.0), simulated=10.0).error == pytest.approx(0.1)


def test_echoes_do_not_count() -> None:
    good = MicroResult(row=row("cycles", 10.0), simulated=10.0)
    bad_echo = MicroResult(row=row("cycles", 10.0, echo=True), simulated=20.0)
    report = MicroReport(results=(good, bad_echo))
    assert (report.mean_abs_error, report.max_abs_error) == (0.0, 0.0)
