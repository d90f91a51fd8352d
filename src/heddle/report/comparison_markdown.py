"""The tables of `heddle compare --all` as Markdown: a short one of all workloads and GPUs, one a machine, notes.

Pure: returns text. A note has a number, which stands beside every figure that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heddle.metrics.render import REMARKS, percent
from heddle.report.comparison import as_today, nearest_ceiling
from heddle.report.markdown import table
from heddle.study.compare_all import BATCHES

Row = Mapping[str, Any]


def document(rows: Sequence[Row]) -> str:
    """Return all tables and the notes."""
    notes = _Notes(rows)
    machines = list(dict.fromkeys(row["gpu"] for row in rows))
    parts = ["Speed-ups in cycles; in brackets the notes below. *paper*: its figure, where it has one.", ""]
    short = [row for row in rows if " " not in row["gpu"] and not _other_batch(row["case"])]
    parts += [*_short(short, notes), *_without_gain(short)]
    for machine in machines:
        here = [row for row in rows if row["gpu"] == machine]
        parts += ["", f"**{machine}**", "", *_machine(here, notes)]
        parts += ["", f"Launches of sequences on {machine}:", "", *_launches(here)] if _sequences(here) else []
    parts += ["", "Notes:", "", *notes.lines()] if notes.texts else []
    return "\n".join(parts) + "\n"


def _other_batch(case: str) -> bool:
    """Tell whether a case is attention of another batch than the one that is called the paper's setting."""
    return case.startswith("attention") and case.endswith(tuple(f" B{batch}" for batch in BATCHES[1:]))


class _Notes:
    """What is said beside numbers, each text once."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.texts = list(dict.fromkeys(text for row in rows for text in _remarks(row)))

    def marks(self, row: Row) -> str:
        numbers = [str(1 + self.texts.index(text)) for text in _remarks(row)]
        return f" [{', '.join(numbers)}]" if numbers else ""

    def lines(self) -> list[str]:
        return [f"{number}. {text}" for number, text in enumerate(self.texts, 1)]


def _remarks(row: Row) -> list[str]:
    """Return why nothing public checks the numbers of a row, and what its baseline lacks."""
    base = row.get("baseline") or {}
    return [f"{title}: {base[field]}" for field, title in REMARKS.items() if base.get(field)]


def _short(rows: Sequence[Row], notes: _Notes) -> list[str]:
    """One line a workload, the GPUs side by side."""
    gpus = list(dict.fromkeys(row["gpu"] for row in rows))
    found = {(row["case"], row["gpu"]): row for row in rows}
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        cells = [case]
        for gpu in gpus:
            row = found.get((case, gpu), {})
            cells += [_speedup(row) + notes.marks(row), _number(row.get("paper", {}).get("speedup"))]
        lines.append(cells)
    return table(["workload", *(name for gpu in gpus for name in (gpu, "paper"))], lines)


def _without_gain(rows: Sequence[Row]) -> list[str]:
    """Name the workloads in which FIBER does not beat today's kernel, by GPU."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.get("speedup") and row["speedup"] <= 1:
            names.setdefault(row["gpu"], []).append(row["case"])
    words = "; ".join(f"{gpu}: {', '.join(cases)}" for gpu, cases in names.items())
    return ["", f"No searched mapping beats today's kernels here: {words}."] if names else []


def _machine(rows: Sequence[Row], notes: _Notes) -> list[str]:
    """All figures of one machine, a line a workload; the control where there is one."""
    control = any(row.get("control") for row in rows)
    columns = ["workload", "baseline, cycles", "tensor use", *(["control, cycles"] if control else []),
               "FIBER, cycles", "tensor use", "speed-up", *(["over control"] if control else []),
               "ceiling", "paper", "what limits FIBER", "remarks"]  # fmt: skip
    lines = []
    for row in rows:
        if gap := row.get("failed", row.get("missing", "")):
            lines.append([row["case"], *[""] * (len(columns) - 2), gap])
            continue
        beside = [_run(row["control"])[0]] if control else []
        over = [_number(row["speedup_over_control"])] if control else []
        limit, (ceiling, what) = row["limit"], nearest_ceiling(row)
        far = f"off the paper: {limit['paper']}" if limit["paper"] else ""
        no_gain = limit["no_gain"].partition(" (")[0]  # without the command that found the mapping
        remarks = "; ".join(part for part in (far, no_gain, as_today(row)) if part)
        lines.append([
            row["case"] + notes.marks(row), *_run(row["baseline"]), *beside, *_run(row["fiber"]),
            _speedup(row), *over, _number(ceiling) + what, _number(row["paper"].get("speedup")),
            limit["text"], remarks,
        ])  # fmt: skip
    return table(columns, lines)


def _sequences(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.get("steps")]


def _launches(rows: Sequence[Row]) -> list[str]:
    """One line a launch of each sequence: cycles of both forms, the share of today's time, its own speed-up."""
    columns = ["workload", "launch", "baseline, cycles", "share", "FIBER, cycles", "share", "speed-up"]
    lines = []
    for row in _sequences(rows):
        for step in row["steps"]:
            forms = [_part(step, form) for form in ("baseline", "fiber")]
            speedup = "as today" if step["note"] else _number(step["speedup"])
            lines.append([row["case"], step["name"], *forms[0], *forms[1], speedup])
    return table(columns, lines)


def _part(step: Row, form: str) -> list[str]:
    cycles, share = step[f"{form}_cycles"], step[f"{form}_share"]
    return ["absent", ""] if cycles is None else [f"{cycles:,}", percent(share)]


def _run(row: Row | None) -> list[str]:
    return [f"{row['cycles']:,}", percent(row["tensor_utilization"])] if row else ["absent", ""]


def _speedup(row: Row) -> str:
    return _number(row.get("speedup")) or ("failed" if "failed" in row else "absent")


def _number(value: float | None) -> str:
    return f"{value:.2f}" if value else ""
