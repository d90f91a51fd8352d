"""The CPI stack of FlashAttention: as text, and as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from heddle.metrics.render import percent
from heddle.report.exhibits._tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEWS = {"all": "all warps", "by_issue": "by issue"}
COLOURS = ("#2f7f4f", "#9ccfa8", "#dddddd", "#8a6fb0", "#e08a1e", "#1f5fa8", "#b5482f")
"""Of the groups, in their order; synchronisation last."""


def show(answer: Mapping[str, Any]) -> RenderableType:
    """Return one column a kernel and weighting; a column of shares sums to 100 %."""
    rows = answer["rows"]
    columns = [(row, view) for row in rows for view in VIEWS]
    params = " ".join(f"{name}={value}" for name, value in answer["params"].items())
    names = [f"{row['kernel']}, {row['gpu']}, {VIEWS[view]}" for row, view in columns]
    made = table(f"{answer['title']}: {params}", ["share of warp cycles", *names])
    for group in rows[0]["all"]["shares"]:
        made.add_row(group, *(percent(row[view]["shares"][group]) for row, view in columns))
    made.add_row("CPI (warp cycles an instruction)", *(f"{row[view]['cpi']:.2f}" for row, view in columns))
    made.add_row("the paper: synchronisation", *(_paper(row) for row, _ in columns))
    return Group(made, *(_roles(row) for row in rows))


def _paper(row: Mapping[str, Any]) -> str:
    return percent(row["paper"]["share"]) if row["paper"] else ""


def _roles(row: Mapping[str, Any]) -> str:
    shares = ", ".join(f"{role} {percent(share)}" for role, share in row["synchronisation_by_role"].items())
    return f"{row['kernel']}, synchronisation by role: {shares}"


def draw(answer: Mapping[str, Any], figure: Figure) -> None:
    """Draw a stacked bar for each kernel and weighting, and the paper's shares of synchronisation."""
    axes = figure.add_subplot()
    bars = [(row, view) for row in answer["rows"] for view in VIEWS]
    bottom = [0.0] * len(bars)
    for group, colour in zip(reversed([*answer["rows"][0]["all"]["shares"]]), reversed(COLOURS), strict=True):
        heights = [100 * row[view]["shares"][group] for row, view in bars]
        axes.bar(range(len(bars)), heights, 0.7, bottom=bottom, color=colour, label=group)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    for place, (row, _) in enumerate(bars):
        if row["paper"]:
            axes.plot([place - 0.35, place + 0.35], [100 * row["paper"]["share"]] * 2, color="black", linestyle="--")
    axes.plot([], [], color="black", linestyle="--", label="synchronisation in the paper")
    labels = [f"{row['kernel']}\n{VIEWS[view]}\nCPI {row[view]['cpi']:.1f}" for row, view in bars]
    axes.set_xticks(range(len(bars)), [label.replace(" ", "\n", 1) for label in labels])
    axes.set_ylabel("share of warp cycles, per cent")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), reverse=True)
    axes.spines[["top", "right"]].set_visible(False)
