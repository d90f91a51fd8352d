"""The study of features over all workloads: a table of speed-ups, one of counters, and bars."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from heddle.metrics.render import percent
from heddle.report.exhibits._tables import table
from heddle.study.features import STEPS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#e08a1e", "#2f7f4f", "#8a6fb0")
PIPES = ("tensor", "sfu", "fma", "alu")
"""The compute pipelines of the table; the JSON has all."""
SHORT = {step.name: step.short for step in STEPS}
"""What stands in the name of the machine of a step."""
LAUNCH = re.compile("^step [^ ]+ ")
"""Which launch of a sequence runs as today: all with the same reason share a line."""
STALLS = ("memory", "pipes and register ports", "products", "synchronisation")


def show(answer: Mapping[str, Any]) -> RenderableType:
    """Return the tables, and why a step has no result."""
    rows = answer["rows"]
    return Group(_gains(answer["title"], rows), _counters(rows), *_reasons(rows))


def _gains(title: str, rows: list[Mapping[str, Any]]) -> RenderableType:
    """Speed-ups over the baseline, and the parts of the gain."""
    names = _steps(rows)
    made = table(title, ["workload", "gpu", *names, "of the gain: DP", "FS", "RS", "the paper"], left=2)
    for row in rows:
        if "failed" in row:
            made.add_row(row["workload"], row["gpu"], *[""] * (len(names) + 3), row["failed"])
            continue
        speedups = [_speedup(form) for form in row["forms"]]
        parts = [percent(share) if share is not None else "-" for share in row["parts_of_gain"].values()]
        made.add_row(row["workload"], row["gpu"], *speedups, *parts, _paper(row["paper"]))
    return made


def _speedup(form: Mapping[str, Any]) -> str:
    """Its speed-up, "in part" where launches run as today that have a FIBER-native kernel only with more features."""
    if not form["speedup"]:
        return "-"
    return f"{form['speedup']:.2f}x{' in part' if form['in_part'] else ''}"


def _paper(stated: Mapping[str, Any]) -> str:
    """Shares by feature; `words` where the paper has no figure."""
    shares = [f"{name} {percent(share)}" for name, share in stated.items() if name not in ("where", "words")]
    return ", ".join([*shares, *([stated["words"]] if "words" in stated else [])])


def _counters(rows: list[Mapping[str, Any]]) -> RenderableType:
    """Occupancy, pipes, and where warp cycles go, of each form; steps that change nothing share a line."""
    columns = ["workload", "gpu", "form", "cycles", "occupancy", *PIPES, "issue slots", *STALLS]
    made = table("Shares of time (occupancy, pipes, issue slots) and of warp cycles (the others)", columns, left=3)
    for row in rows:
        if "failed" in row:
            continue
        lines: dict[tuple[str, ...], list[str]] = {}
        for name, form in (("baseline", row["baseline"]), *((form["features"], form) for form in row["forms"])):
            if "cycles" in form:
                lines.setdefault(tuple(_cells(form)), []).append(name)
        for cells, names in lines.items():
            made.add_row(row["workload"], row["gpu"], "; ".join(names), *cells)
    return made


def _cells(form: Mapping[str, Any]) -> Iterator[str]:
    yield f"{form['cycles']:,}"
    yield percent(form["occupancy"])
    yield from (percent(form["pipes"].get(pipe, 0.0)) for pipe in PIPES)
    yield percent(form["issue_utilization"])
    yield from (percent(form["stalls"][state]) for state in STALLS)


def _reasons(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Say what is missing, and which steps of a sequence run as today: each reason once, with what it is about."""
    about: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        for form in row.get("forms", []):
            for reason in (form["absent"], *form.get("notes", [])):
                if reason:
                    text = LAUNCH.sub("a launch ", reason.removesuffix(f" ({row['gpu']}+{SHORT[form['features']]})"))
                    where = f"{row['workload']} ({row['gpu']})"
                    about.setdefault(text, {}).setdefault(form["features"], {})[where] = None
    for text, steps in about.items():
        found = "; ".join(f"{step}: {', '.join(names)}" for step, names in steps.items())
        yield f"{found}: {text}"


def _steps(rows: list[Mapping[str, Any]]) -> list[str]:
    return [form["features"] for row in rows if "forms" in row for form in row["forms"]][: _count(rows)]


def _count(rows: list[Mapping[str, Any]]) -> int:
    return max((len(row["forms"]) for row in rows if "forms" in row), default=0)


def draw(answer: Mapping[str, Any], figure: Figure) -> None:
    """Draw the speed-ups of the steps by workload, on the GPU of the paper's figure: the first of the rows."""
    gpu = answer["rows"][0]["gpu"]
    rows = [row for row in answer["rows"] if row["gpu"] == gpu and "forms" in row]
    axes = figure.add_subplot()
    names = _steps(rows)
    width = 0.8 / max(1, len(names))
    for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        heights = [row["forms"][place]["speedup"] or 0.0 for row in rows]
        axes.bar([at + place * width for at in range(len(rows))], heights, width, color=colour, label=name)
    axes.axhline(1.0, color="black", linewidth=1)
    ticks = [at + width * (len(names) - 1) / 2 for at in range(len(rows))]
    axes.set_xticks(ticks, [row["workload"] for row in rows], rotation=30, ha="right")
    axes.set_ylabel(f"speed-up over today's kernel, {gpu}")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.spines[["top", "right"]].set_visible(False)
