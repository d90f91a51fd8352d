"""Lines of code: as text, and as bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from heddle.report.exhibits._tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAR = 0.8
"""Width of the bars of a generation together."""


def show(answer: Mapping[str, Any]) -> RenderableType:
    """Return our kernels, then the public ones."""
    own = table(answer["title"], ["kernel", "mode", "gpu", "logical lines", "code lines", "lines that synchronise",
                                  "roles", "files"], left=3)  # fmt: skip
    for row in answer["rows"]:
        counts = (row[name] for name in ("logical_lines", "code_lines", "synchronisation_lines", "roles"))
        own.add_row(row["kernel"], row["mode"], row["gpu"], *map(str, counts), str(len(row["files"])))
    cited = answer["originals"]
    public = table("Public kernels", ["kernel", "gpu", "code lines", "files"], left=2)
    for row in cited["kernels"]:
        public.add_row(row["kernel"], row["gpu"], str(row["code_lines"]), str(len(row["files"])))
    return Group(own, public, f"counted in {cited['repository']} at {cited['commit'][:12]}: {cited['rule']}")


def draw(answer: Mapping[str, Any], figure: Figure) -> None:
    """Draw code lines by kernel and mode, a bar a generation."""
    axes = figure.add_subplot()
    rows = answer["rows"]
    groups = list(dict.fromkeys((row["kernel"], row["mode"]) for row in rows))
    gpus = list(dict.fromkeys(row["gpu"] for row in rows))
    lines = {(row["kernel"], row["mode"], row["gpu"]): row["code_lines"] for row in rows}
    for number, gpu in enumerate(gpus):
        places = [place + BAR * (number / len(gpus) - 0.5) for place in range(len(groups))]
        axes.barh(places, [lines.get((*group, gpu), 0) for group in groups], BAR / len(gpus), align="edge", label=gpu)
    axes.set_yticks(range(len(groups)), [", ".join(group) for group in groups])
    axes.invert_yaxis()
    axes.set_xlabel("lines of code")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
