"""The micro suite: small programs, run by the engine, against public measurements of each GPU.

Rows are data (`micro_data/<gpu>.toml`): what was measured, by whom, and which probe reproduces it. A row is an *echo*
if it can only return one value of the preset; echoes are shown and left out of the mean.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heddle.errors import unknown_name
from heddle.machine import machine
from heddle.machine.load import sources
from heddle.study import micro_compute, micro_matrix, micro_memory, micro_shared, micro_stream
from heddle.study.micro_build import Condition

DATA = Path(__file__).parent / "micro_data"
PROBES: dict[str, Callable[..., float]] = {
    **micro_compute.PROBES,
    **micro_shared.PROBES,
    **micro_matrix.PROBES,
    **micro_memory.PROBES,
    **micro_stream.PROBES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroRow:
    """One measured quantity: `probe(**params)` reproduces it on `gpu`, with `board` changed as the measured board was.

    `rate`: the larger the faster, so that the error in time is measured / simulated - 1. `reason`: why the model
    misses it.
    """

    id: str
    gpu: str
    quantity: str
    measured: float
    unit: str
    source: str
    probe: str
    params: dict[str, Any] = field(default_factory=dict)
    board: dict[str, Any] = field(default_factory=dict)
    clock_mhz: float = 0.0  # 0: the machine's maximum
    echo: bool = False
    reason: str = ""

    @property
    def rate(self) -> bool:
        """True if the unit is one over time."""
        return "/" in self.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroResult:
    """A row and what the engine made of it."""

    row: MicroRow
    simulated: float

    @property
    def error(self) -> float:
        """Relative error in time: positive is too slow. For a measured zero, the difference itself."""
        measured, simulated = self.row.measured, self.simulated
        if measured == 0:
            return simulated
        return (measured / simulated if self.row.rate else simulated / measured) - 1.0

    def as_row(self) -> dict[str, Any]:
        """Return the row's line of the validation JSON."""
        row = self.row
        return {
            "case_id": row.id,
            "gpu": row.gpu,
            "quantity": row.quantity,
            "measured": row.measured,
            "simulated": self.simulated,
            "unit": row.unit,
            "error": self.error,
            "echo": row.echo,
            "source": row.source,
            "reason": row.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroReport:
    """Results of one GPU's rows; the means are over the rows that are no echoes."""

    results: tuple[MicroResult, ...]

    @property
    def judged(self) -> list[MicroResult]:
        """The rows that count."""
        return [result for result in self.results if not result.row.echo]

    @property
    def mean_abs_error(self) -> float:
        """Mean of the absolute errors of the rows that count."""
        errors = [abs(result.error) for result in self.judged]
        return sum(errors) / len(errors) if errors else 0.0

    @property
    def max_abs_error(self) -> float:
        """Largest absolute error of the rows that count."""
        return max((abs(result.error) for result in self.judged), default=0.0)


def available() -> list[str]:
    """Return the GPUs that have micro rows."""
    return sorted(path.stem for path in DATA.glob("*.toml"))


def micro_rows(gpu: str) -> list[MicroRow]:
    """Return the rows of a GPU. Raises UserError for a GPU without rows."""
    if gpu not in available():
        raise unknown_name("GPU with micro rows", gpu, available())
    data = tomllib.loads((DATA / f"{gpu}.toml").read_text(encoding="utf-8"))
    boards = data.get("boards", {})
    rows = []
    for row in data["rows"]:
        board = boards[row.pop("board")] if "board" in row else {}
        rows.append(MicroRow(gpu=gpu, board=board, **{**row, "source": sources().get(row["source"], row["source"])}))
    return rows


def run_row(row: MicroRow) -> MicroResult:
    """Simulate one row."""
    gpu = machine(row.gpu)
    gpu = gpu.replace(**row.board) if row.board else gpu
    condition = Condition(machine=gpu, clock_mhz=row.clock_mhz or gpu.max_clock_mhz)
    return MicroResult(row=row, simulated=PROBES[row.probe](condition, **row.params))


def run_micro(gpu: str, rows: Iterable[MicroRow] | None = None) -> MicroReport:
    """Simulate the rows of a GPU (or those given)."""
    return MicroReport(results=tuple(run_row(row) for row in (micro_rows(gpu) if rows is None else rows)))


def micro_suite(gpu: str | None = None) -> dict[str, Any]:
    """Run the suite of one GPU or of all, and return the validation JSON: cases, groups, worst rows, means."""
    reports = {name: run_micro(name) for name in ([gpu] if gpu else available())}
    results = [result for report in reports.values() for result in report.results]
    judged = [result for report in reports.values() for result in report.judged]
    worst = sorted(judged, key=lambda result: -abs(result.error))[:5]
    return {
        "suite": "micro",
        "cases": [result.as_row() for result in results],
        "groups": [group for name, report in reports.items() for group in _groups(name, report)],
        "worst": [{"case_id": r.row.id, "error": r.error, "reason": r.row.reason or r.row.quantity} for r in worst],
        "not_modelled": [],
        **_summary(judged),
    }


def _groups(gpu: str, report: MicroReport) -> list[dict[str, Any]]:
    echoes = [result for result in report.results if result.row.echo]
    groups = [("judged", report.judged), ("echo (not in the mean)", echoes)]
    return [{"gpu": gpu, "group": name, "cases": len(rows), **_summary(rows)} for name, rows in groups if rows]


def _summary(results: list[MicroResult]) -> dict[str, Any]:
    errors = [result.error for result in results]
    return {
        "mean_abs_error": sum(map(abs, errors)) / len(errors) if errors else None,
        "max_abs_error": max(map(abs, errors)) if errors else None,
        "bias": sum(errors) / len(errors) if errors else None,
        "pearson": None,
    }
