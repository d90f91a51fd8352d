"""The scaling study: a table, and all points on one roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from heddle.metrics.render import percent
from heddle.report.exhibits._tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#b5482f", "#1f5fa8", "#2f7f4f", "#e08a1e", "#8a6fb0", "#59a5d8")
MARKERS = ("o", "s", "D")
"""Of the rates."""
INTENSITIES = (12.0, 400.0)
"""FLOP a byte of shared memory: ends of the axis."""
COLUMNS = (
    *("operands from", "peak", "achieved", "of peak", "wait for operands", "FLOP/B of shared memory", "over private"),
    *("shared memory, B read/cycle", "registers, B read/cycle", "busiest", "the paper", "tile"),
)


def show(answer: Mapping[str, Any]) -> RenderableType:
    """Return one line a point, rates in FLOP a cycle and SM."""
    sizes = " x ".join(str(size) for size in answer["sizes"].values())
    made = table(f"{answer['title']}: {sizes}, FLOP a cycle and SM", COLUMNS)
    for row in answer["rows"]:
        if "failed" in row:
            made.add_row(row["supply"], f"{row['rate']:,}", "", "", "", "", "", "", "", row["failed"], "", "")
            continue
        made.add_row(
            row["supply"],
            f"{row['rate']:,}",
            f"{row['achieved']:,.0f}",
            percent(row["tensor_utilization"]),
            percent(row["operand_wait"]),
            f"{row['intensity']:.1f}",
            f"{row['intensity_over_private']:.1f}x" if row["intensity_over_private"] else "",
            f"{row['shared_read_bytes_per_cycle']:.1f}",
            f"{row['register_read_bytes_per_cycle']:.0f}",
            limit(row),
            row["paper"].get("text") or f"intensity {row['paper']['intensity_over_private']:.0f}x",
            row["config"],
        )
    what = dict.fromkeys(f"{row['supply']}: {row['what']}" for row in answer["rows"])
    return Group(made, *what)


def limit(row: Mapping[str, Any]) -> str:
    """Return the busiest unit of a point; where none is saturated also what the busiest role waits for."""
    text = f"{row['unit']} {percent(row['busy'][row['unit']])}"
    if row["saturated"]:
        return text
    waits = ", ".join(f"{name} {percent(share)}" for name, share in row["stalls"].items())
    return f"{text}; {row['role']} waits: {waits}"


def draw(answer: Mapping[str, Any], figure: Figure) -> None:
    """Draw the roofs and the points."""
    axes = figure.add_subplot()
    _roofs(axes, answer)
    rows = [row for row in answer["rows"] if "failed" not in row]
    for supply, colour in zip(dict.fromkeys(row["supply"] for row in rows), COLOURS, strict=False):
        mine = [row for row in rows if row["supply"] == supply]
        axes.plot([row["intensity"] for row in mine], [row["achieved"] for row in mine], color=colour, label=supply)
        for row in mine:
            marker = MARKERS[answer["rates"].index(row["rate"]) % len(MARKERS)]
            axes.plot(row["intensity"], row["achieved"], marker, color=colour, markersize=6)
    for rate, marker in zip(answer["rates"], MARKERS, strict=False):
        axes.plot([], [], marker, color="grey", label=f"peak {rate:,}")
    axes.set_xlabel("FLOP a byte read from shared memory")
    axes.set_ylabel("FLOP a cycle and SM")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _roofs(axes: Axes, answer: Mapping[str, Any]) -> None:
    """Draw the bandwidth of shared memory and the peaks."""
    low, high = INTENSITIES
    rate = answer["shared_bytes_per_cycle"]
    top = max(answer["rates"])
    axes.plot([low, top / rate], [low * rate, top], color="black", linewidth=1)
    for peak in answer["rates"]:
        axes.plot([peak / rate, high], [peak, peak], color="black", linewidth=1)
    axes.text(low * 1.9, low * rate * 2.1, f"{rate} B a cycle", ha="right", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(low, high)
    axes.set_ylim(low * rate, top * 1.3)
    axes.set_xticks([16, 32, 64, 128, 256], ["16", "32", "64", "128", "256"])
    axes.set_yticks(answer["rates"], [f"{peak:,}" for peak in answer["rates"]])
    axes.minorticks_off()
