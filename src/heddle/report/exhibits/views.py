"""Which view shows which exhibit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from heddle.errors import UserError
from heddle.report.exhibits import fig1, fig2b, scaling, table1, utilization

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Answer = Mapping[str, Any]
INCHES = (9.0, 5.0)


@dataclass(frozen=True, slots=True)
class View:
    """How an exhibit is shown; `draw` fills an empty figure, None where the exhibit is a table alone."""

    show: Callable[[Answer], RenderableType]
    draw: Callable[[Answer, Figure], None] | None = None


VIEWS = {
    "fig1": View(fig1.show, fig1.draw),
    "fig2b": View(fig2b.show, fig2b.draw),
    "table1": View(table1.show),
    "scaling": View(scaling.show, scaling.draw),
    "utilization": View(utilization.show, utilization.draw),
}


def report(answers: list[dict[str, Any]]) -> RenderableType:
    """Return all exhibits, one below the other; the reason where one failed."""
    return Group(*(_shown(answer) for answer in answers))


def _shown(answer: Answer) -> RenderableType:
    if "failed" in answer:
        return f"{answer['title']}: failed: {answer['failed']}"
    return Group(VIEWS[answer["name"]].show(answer), f"in the paper: {answer['where']}", "")


def check_drawable() -> None:
    """Raise UserError if pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("a picture needs matplotlib", hint='pip install "heddle-gpu[pictures]"') from None


def draw_all(answers: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw the exhibits that have a picture as SVG files of their names; return the files. Raises UserError."""
    check_drawable()
    drawn = []
    for answer in answers:
        draw = VIEWS[answer["name"]].draw
        if draw is not None and "failed" not in answer:
            drawn.append(folder / f"{answer['name']}.svg")
            _draw(draw, answer, drawn[-1])
    return drawn


def _draw(draw: Callable[[Answer, Figure], None], answer: Answer, file: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "heddle", "font.size": 9}):
        figure = Figure(figsize=INCHES, layout="constrained")
        draw(answer, figure)
        figure.suptitle(answer["title"], x=0.02, ha="left")
        try:
            figure.savefig(file, metadata={"Date": None})
        except OSError as problem:
            raise UserError(f"cannot write {str(file)!r}: {problem.strerror or problem}") from None
