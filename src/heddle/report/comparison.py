"""The tables of `heddle compare`: today's kernel, the control, FIBER, and the steps between them.

All functions are pure: they return a renderable and print nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from heddle.metrics.render import REMARKS, form_lines, own_pipes, percent, remarks
from heddle.study.limits import dram_share

Row = Mapping[str, Any]
RUNS = ("baseline", "control", "fiber")
UNVALIDATED = " *"
"""Stands behind the name of what no public measurement checks."""
SMALLEST_SHARE = 0.005  # a state or pipe below it everywhere is left out


def report(row: Row) -> RenderableType:
    """Return the whole comparison: figures, units, where the cycles go, the ablation, what is absent."""
    parts: list[RenderableType] = [heading(row), figures(row), units(row), stalls(row)]
    if "ablation" in row:
        parts.append(ablation(row))
    if "oracles" in row:
        parts += [oracles(row), switches(row), SWITCHES_NOTE]
    if row.get("steps"):
        parts.append(steps(row))
    parts += [step["note"] for step in row.get("steps", []) if step["note"]]
    parts += [f"no {name}: {reason}" for name, reason in _absent_runs(row)]
    parts += mapping(row)
    if row["fiber"]:
        parts.append(f"what limits fiber: {row['limit']['text']}")
        parts += [row["limit"]["no_gain"]] if row["limit"]["no_gain"] else []
    return Group(*parts, summary(row))


def mapping(row: Row) -> list[RenderableType]:
    """Say where the mapping of the FIBER kernel comes from, if that is known."""
    origin = (row["fiber"] or {}).get("choice", {}).get("origin", "")
    return [f"mapping of fiber: {origin}", *form_lines(row["fiber"])] if origin else []


def heading(row: Row) -> str:
    """Return kernel, GPU, parameters and clock."""
    params = " ".join(f"{name}={value}" for name, value in row["params"].items())
    head = f"{row['kernel']} on {row['gpu']}: {params}\nall at {row['clock_mhz']:.0f} MHz; speed-ups are in cycles"
    return head + remarks(row["baseline"])


def summary(row: Row) -> str:
    """Return the result in a line or two, the paper's figure beside it."""
    parts = [_ceiling(row)]
    if row["speedup"]:
        parts.insert(0, f"FIBER {_times(row['speedup'])} over the baseline")
    if row["speedup_over_control"]:
        parts.insert(1, f"{_times(row['speedup_over_control'])} over the control")
    if row["paper"]:
        parts.append(f"the paper {_times(row['paper']['speedup'])} ({row['paper']['where']})")
    return "; ".join(parts)


def _ceiling(row: Row) -> str:
    """Return the largest speed-up by tensor use, and how busy DRAM is where that is more, or nothing is multiplied."""
    ceiling, dram = row["ceiling_speedup"], dram_share(row["baseline"])
    busy = f"; the baseline keeps DRAM {percent(dram)} busy" if dram is not None else ""
    if ceiling is not None:
        beside = busy if dram is not None and dram * ceiling > 1.0 else ""
        return f"ceiling {_times(ceiling)} (1 / tensor use of the baseline){beside}"
    return f"no ceiling: no matrix products{busy}"


def nearest_ceiling(row: Row) -> tuple[float | None, str]:
    """Return the largest speed-up that the baseline leaves, and " by DRAM" where that is busier than tensor cores."""
    dram, use = dram_share(row["baseline"]), row["baseline"]["tensor_utilization"]
    return (1.0 / dram, " by DRAM") if dram and dram > use else (row["ceiling_speedup"], "")


def figures(row: Row) -> Table:
    """Return cycles, tensor use, speed-up, occupancy and configuration of each run."""
    runs = _runs(row)
    table = _table("Comparison", "figure", *runs)
    base = row["baseline"]["cycles"]
    table.add_row("cycles", *(f"{run['cycles']:,}" for run in runs.values()))
    table.add_row("speed-up", *(_times(base / run["cycles"]) for run in runs.values()))
    for name, key in (("tensor (useful FLOPs)", "tensor_utilization"), ("issue slots used", "issue_utilization")):
        table.add_row(name, *(percent(run[key]) for run in runs.values()))
    table.add_row("occupancy", *(percent(run["occupancy"]) for run in runs.values()))
    table.add_row("configuration", *(str(run["params"].get("config", "")) for run in runs.values()))
    return table


def units(row: Row) -> Table:
    """Return how busy the pipes are, side by side."""
    return _shares("How busy", "unit", {name: own_pipes(run["pipes"]) for name, run in _runs(row).items()})


def stalls(row: Row) -> Table:
    """Return where the warp cycles go, side by side; a column sums to 100 %."""
    return _shares("Where the warp cycles go", "state", {name: run["stalls"] for name, run in _runs(row).items()})


def ablation(row: Row) -> Table:
    """Return one line a step; a step without a kernel says why."""
    table = Table("features", "cycles", "speed-up", "tensor use", "configuration", title="Step by step",
                  title_justify="left")  # fmt: skip
    base = row["baseline"]
    table.add_row("baseline", f"{base['cycles']:,}", _times(1.0), percent(base["tensor_utilization"]),
                  str(base["params"].get("config", "")))  # fmt: skip
    for step in row["ablation"]:
        if step["cycles"] is None:
            table.add_row(step["features"], "absent", "", "", step["absent"])
            continue
        use = percent(step["tensor_utilization"])
        table.add_row(step["features"], f"{step['cycles']:,}", _times(step["speedup"]), use, step["config"])
    return table


def steps(row: Row) -> Table:
    """Return one line a step of a sequence of launches: cycles and share of both forms, its own speed-up."""
    table = _table("Steps", "step", "kernel", "baseline", "share", "FIBER", "share", "speed-up")
    for step in row["steps"]:
        cells: list[str] = []
        for form in ("baseline", "fiber"):
            cycles, share = step[f"{form}_cycles"], step[f"{form}_share"]
            cells += ["absent", ""] if cycles is None else [f"{cycles:,}", percent(share)]
        kernels = " / ".join(dict.fromkeys((step["baseline_kernel"], step["kernel"])))
        table.add_row(step["name"], kernels, *cells, _times(step["speedup"]))
    return table


def oracles(row: Row) -> Table:
    """Return today's kernel under each oracle, the paper's speed-up beside it."""
    table = _table("Oracles: today's kernel, idealised", "oracle", "cycles", "speed-up", "tensor use", "paper")
    for step in row["oracles"]:
        table.add_row(", ".join(step["oracle"]), *_outcome(step, _times(step["speedup"])), _times(step["paper"]))
    return table


def switches(row: Row) -> Table:
    """Return the change of today's time with something switched off, what GTSim publishes beside it."""
    table = _table("Switched off", "off", "cycles", "change", "tensor use", "GTSim")
    for step in row["switches"]:
        change = "" if step["change"] is None else f"{100 * step['change']:+.1f} %"
        error = step["gtsim_error_percent"]
        table.add_row(", ".join(step["off"]), *_outcome(step, change), "" if error is None else f"{error:.2f} %")
    return table


SWITCHES_NOTE = "GTSim: error of its FP8 GEMM time without these edges (1.55 % with all), not a change of time."


def _outcome(step: Row, figure: str) -> tuple[str, str, str]:
    """Return cycles, a figure and tensor use of a row; why it is absent in the last column."""
    if step["cycles"] is None:
        return "absent", "", step["absent"]
    return f"{step['cycles']:,}", figure, percent(step["tensor_utilization"])


def overview(rows: Iterable[Row]) -> Table:
    """Return one line a comparison: cycles, tensor use, speed-ups, ceiling, the paper's; marks for unvalidated ones."""
    columns = ("case", "gpu", "baseline", "use", "control", "FIBER", "use", "speed-up", "over control", "ceiling",
               "paper")  # fmt: skip
    table = _table("Comparisons", *columns)
    for row in rows:
        if gap := next((word for word in ("failed", "missing") if word in row), ""):
            word = "failed" if gap == "failed" else "absent"
            table.add_row(row["case"], row["gpu"], word, *[""] * (len(columns) - 3))
            continue
        control, fiber, base = row["control"], row["fiber"], row["baseline"]
        mark, (ceiling, what) = UNVALIDATED if base.get("unvalidated") else "", nearest_ceiling(row)
        table.add_row(
            row.get("case", row["kernel"]) + mark,
            row["gpu"],
            f"{base['cycles']:,}",
            percent(base["tensor_utilization"]),
            _times(row["speedup_of_control"]) if control else "",
            f"{fiber['cycles']:,}" if fiber else "absent",
            percent(fiber["tensor_utilization"]) if fiber else "",
            _times(row["speedup"]),
            _times(row["speedup_over_control"]),
            _times(ceiling) + what,
            _times(row["paper"].get("speedup")),
        )
    return table


def reasons(rows: Iterable[Row]) -> Table:
    """Return what limits the FIBER kernel in each comparison, and why its gain is far from the paper's if it is.

    Where nothing was run for FIBER, or only some launches of a sequence, or no mapping beats today's, that is said.
    """
    table = Table("case", "gpu", "what limits FIBER, by its counters", "far from the paper", title="Why",
                  title_justify="left")  # fmt: skip
    for row in rows:
        gap = f"failed: {row['failed']}" if "failed" in row else row.get("missing", "")
        found = {"text": gap, "paper": "", "no_gain": ""} if gap else row["limit"]
        text = "; ".join(part for part in (as_today(row), found["no_gain"], found["text"]) if part)
        table.add_row(row.get("case", row["kernel"]), row["gpu"], text, found["paper"])
    return table


def as_today(row: Row) -> str:
    """Say which launches of a sequence have no FIBER form."""
    without = [step["name"] for step in row.get("steps", []) if step["note"]]
    return f"no FIBER form, so as today: {', '.join(without)}" if without else ""


def remarks_of(rows: Sequence[Row]) -> list[str]:
    """Return why no public measurement checks the baselines, and what they lack: a line a text with its cases."""
    cases: dict[tuple[str, str], list[str]] = {}
    for field, title in REMARKS.items():
        for row in rows:
            if text := row.get("baseline", {}).get(field, ""):
                on = f"{row['case']} ({row['gpu']})" if field == "baseline_note" else row["case"]
                cases.setdefault((title, text), []).append(on)
    marks = {REMARKS["unvalidated"]: UNVALIDATED.strip() + " "}
    return [
        f"{marks.get(title, '')}{title}: {', '.join(dict.fromkeys(names))}: {text}"
        for (title, text), names in cases.items()
    ]


def _runs(row: Row) -> dict[str, Row]:
    return {name: row[name] for name in RUNS if row[name] is not None}


def _absent_runs(row: Row) -> list[tuple[str, str]]:
    return [(name, reason) for name, reason in row["absent"].items() if name in RUNS]


def _times(factor: float | None) -> str:
    return f"{factor:.2f}x" if factor else ""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _shares(title: str, what: str, columns: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of shares, the largest of the first column first."""
    table = _table(title, what, *columns)
    names = dict.fromkeys(name for shares in columns.values() for name in shares)
    first = next(iter(columns.values()))
    for name in sorted(names, key=lambda name: (name != "issued", -first.get(name, 0.0), name)):
        values = [shares.get(name, 0.0) for shares in columns.values()]
        if max(values) >= SMALLEST_SHARE:
            table.add_row(name, *(percent(value) for value in values))
    return table
