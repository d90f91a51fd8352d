"""Render result JSON for people: rich tables and lines, from plain data, so that stored results render too.

All functions are pure: they return a renderable and print nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from heddle.metrics._pipes import COMMON_PIPES
from heddle.metrics.diff import Change
from heddle.metrics.stalls import NOT_A_STALL, top_reasons

Document = Mapping[str, Any]
_SMALLEST_SHARE = 0.0005  # shown as 0.1 %; smaller ones everywhere are left out
_MANY_LIVE = (128, 160, 200)
"""Numbers of live registers that the table of registers counts instructions above; multiples of 8, as the profile."""


def percent(share: float) -> str:
    """Return a share as "12.3 %"."""
    return f"{100 * share:.1f} %"


def _table(title: str, *columns: str) -> Table:
    """A plain table, first column to the left and the others to the right."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def headline(document: Document) -> str:
    """Return kernel, GPU, parameters, time and rate in two lines."""
    parameters = " ".join(f"{name}={value}" for name, value in document["params"].items())
    ideal = f"\n{_ideal_text(document['ideal'])}" if "ideal" in document else ""
    return (
        f"{document['kernel']} on {document['gpu']} ({document['mode']}): {parameters}\n"
        f"{document['time_us']:.2f} us, {document['tflops']:.1f} TFLOP/s, {document['cycles']} cycles at"
        f" {document['clock_mhz']:.0f} MHz ({document['provenance']['clock_source']}){ideal}{_origin(document)}"
        f"{remarks(document)}"
    )


REMARKS = {"unvalidated": "unvalidated", "baseline_note": "of the baseline"}
"""What is said beside a result where there is something to say, and its name for people."""


def remarks(document: Document) -> str:
    """Say, a line each, why no public measurement checks a result, and what its baseline lacks."""
    return "".join(f"\n{title}: {document[field]}" for field, title in REMARKS.items() if document.get(field))


def _origin(document: Document) -> str:
    """Say where the configuration comes from, on a line of its own, in mode fiber, whose mappings are searched."""
    origin = document.get("choice", {}).get("origin", "")
    if not origin or document["mode"] != "fiber":
        return ""
    return f"\nmapping: {origin}{''.join(f'{chr(10)}{line}' for line in form_lines(document))}"


def form_lines(document: Document) -> list[str]:
    """Say which form of a FIBER-native kernel ran, where several were compared, a line for each launch."""
    launches: dict[str, list[str]] = {}
    for name, form in document["choice"].get("forms", {}).items():
        launch, _, features = name.rpartition(": ")
        about = "" if form["simulated"] else "about "
        launches.setdefault(launch, []).append(f"{features} {about}{form['cycles']:,}")
    chosen = dict(part.rpartition(": ")[::2] for part in document["choice"].get("form", "").split("; "))
    return [
        f"form: {launch and f'{launch}: '}{chosen[launch]}, the fastest of these in cycles: {', '.join(compared)}"
        for launch, compared in launches.items()
        if len(compared) > 1
    ]


def _ideal_text(ideal: Mapping[str, Any]) -> str:
    """Say what is idealised in a run, and what that gives."""
    what = f"oracle {', '.join(ideal['oracle'])}" if ideal["oracle"] else f"{', '.join(ideal['off'])} off"
    return f"{what}: {ideal['speedup']:.3f}x over the machine as it is ({ideal['baseline_cycles']} cycles)"


def speed_of_light_table(document: Document) -> Table:
    """Return the speed-of-light table: metric, unit, value."""
    table = _table("Speed of light", "Metric Name", "Metric Unit", "Metric Value")
    for row in document["speed_of_light"]:
        table.add_row(row["name"], row["unit"], f"{row['value']:,.2f}")
    return table


def step_table(document: Document) -> Table:
    """Return the launches of a sequence: how often, cycles, time, share of the cycles, tensor use, configuration."""
    table = _table("Steps", "step", "kernel", "launches", "cycles", "us", "share", "tensor use", "configuration")
    for step in document["steps"]:
        table.add_row(
            step["name"], step["kernel"], str(step["count"]), f"{step['cycles']:,}", f"{step['time_us']:.2f}",
            percent(step["share"]), percent(step["tensor_utilization"]), str(step["params"].get("config", "")),
        )  # fmt: skip
    return table


def own_pipes(pipes: Mapping[str, float]) -> dict[str, float]:
    """Return each pipe once, by its own name, without the common names of some."""
    return {pipe: share for pipe, share in pipes.items() if COMMON_PIPES.get(pipe, pipe) == pipe}


def pipe_table(document: Document) -> Table:
    """Return how busy the units are, the busiest first."""
    table = _table("How busy", "unit", "use")
    table.add_row("tensor (useful FLOPs)", percent(document["tensor_utilization"]))
    for pipe, share in sorted(own_pipes(document["pipes"]).items(), key=lambda pair: (-pair[1], pair[0])):
        if share >= _SMALLEST_SHARE:
            table.add_row(pipe, percent(share))
    table.add_row("issue slots", percent(document["issue_utilization"]))
    table.add_row("occupancy", percent(document["occupancy"]))
    return table


def stall_table(document: Document) -> Table:
    """Return the states of warps by role, of a sequence of launches for all roles together; columns sum to 100 %."""
    total, by_role = document["stalls"], {} if "steps" in document else document["stalls_by_role"]
    table = _table("Where the warp cycles go", "state", *by_role, "all")
    for state in sorted(total, key=lambda name: (name != "issued", -total[name], name)):
        row = [*(role.get(state, 0.0) for role in by_role.values()), total[state]]
        if max(row) >= _SMALLEST_SHARE:
            table.add_row(state, *(percent(share) for share in row))
    return table


def line_table(document: Document, top: int = 15) -> Table:
    """Return the source lines with most warp cycles; needs a result with `--profile`."""
    rows = sorted(document["by_line"], key=lambda row: -row["warp_cycles"])[:top]
    table = _table(f"Source lines (first {len(rows)} by warp cycles)", "line", "operation", "issued", "share", "why")
    table.columns[-1].justify = "left"
    for row in rows:
        place = f"{row['file'].rsplit('/', 1)[-1]}:{row['line']}"
        table.add_row(place, row["operation"], str(row["issued"]), percent(row["share"]), _reasons(row["stalls"]))
    return table


def register_table(document: Document) -> Table:
    """Return registers a thread by role: live at most, allocated, share of issued instructions with many live.

    The shares need a result with `--profile`; without one their columns are empty.
    """
    above = [f"over {count} live" for count in _MANY_LIVE]
    table = _table("Registers a thread", "role", "live at most", "allocated", *above)
    profile = document["registers"].get("live_profile", {})
    for role, row in document["registers"]["by_role"].items():
        # a profile ends at the most that are ever live
        shares = [percent(profile[role].get(str(count), 0.0)) if role in profile else "" for count in _MANY_LIVE]
        table.add_row(role, str(row["peak_live"]), str(row["allocated"]), *shares)
    if "pool" in document["registers"]:
        table.add_row("pool, for all roles", "", str(document["registers"]["pool"]), *[""] * len(above))
    return table


def synchronisation_text(document: Document) -> str:
    """Return one line on the share of warp cycles spent waiting for other warps; needs a result with `--profile`."""
    found = document["synchronisation"]
    roles = ", ".join(f"{role} {percent(share)}" for role, share in found["by_role"].items())
    return (
        f"Synchronisation: {percent(found['share'])} of the warp cycles, {percent(found['by_issue'])} with roles"
        f" weighted by their instructions ({roles})."
    )


def paper_text(document: Document) -> str:
    """Return a line for each figure that the paper states of this kernel's profile; needs a result with `paper`."""
    figures = document["paper"].values()
    return "\n".join(f"The paper: {percent(f['share'])} ({f['what']}; {f['where']})." for f in figures)


def roofline_text(document: Document) -> str:
    """Return one line on the roofline position."""
    place = document["roofline"]
    intensity = ", ".join(f"{value:.0f} FLOP/byte of {level}" for level, value in place["intensity"].items())
    return f"Roofline: {intensity}; bound by {place['bound']}, {percent(place['share_of_attainable'])} of attainable."


def diff_table(changes: Iterable[Change], a: str = "A", b: str = "B", smallest: float = 0.01) -> Table:
    """Return the metrics that differ by at least `smallest` of A, or that only one side has."""
    table = _table(f"{a} against {b}", "metric", a, b, f"{b} / {a}")
    for change in changes:
        ratio = change.ratio
        if change.a == change.b or (ratio is not None and abs(ratio - 1) < smallest):
            continue
        table.add_row(change.id, _number(change.a), _number(change.b), "" if ratio is None else f"{ratio:.3f}")
    return table


def report(document: Document) -> RenderableType:
    """Return the whole report of a run; source lines and registers only where the result has them."""
    parts: list[RenderableType] = [headline(document)]
    if "steps" in document:
        parts += [step_table(document), *document["notes"]]
    parts += [speed_of_light_table(document), document["verdict"]]
    parts += [roofline_text(document), pipe_table(document), stall_table(document)]
    if "by_line" in document:
        parts += [line_table(document), register_table(document)]
    if "synchronisation" in document:
        parts.append(synchronisation_text(document))
    if document.get("paper"):
        parts.append(paper_text(document))
    return Group(*parts)


def _reasons(cycles: Mapping[str, int]) -> str:
    """The largest stalls of a row of cycle counts, as shares of the row."""
    total = sum(cycles.values()) or 1
    shares = {name: count / total for name, count in cycles.items() if name not in NOT_A_STALL}
    return ", ".join(f"{name} {percent(share)}" for name, share in top_reasons(shares))


def _number(value: float | None) -> str:
    if value is None:
        return "absent"
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1 else f"{value:.4g}"
