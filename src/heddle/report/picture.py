"""Draw a trace file as a picture. Needs matplotlib: `pip install "heddle-gpu[pictures]"`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.errors import UserError
from heddle.report.timeline import ARITHMETIC, COPIES, WAITS, Row, Span, overlap, timeline_rows, union
from heddle.trace import read_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {ARITHMETIC: "#2f7f4f", WAITS: "#dddddd", COPIES: "#8a6fb0"}
PRODUCT_COLOURS = ("#1f5fa8", "#e08a1e", "#59a5d8", "#b5482f", "#7f7f7f")
"""Of products, by their lines."""
WIDTH_INCHES, ROW_INCHES, FRAME_INCHES = 11.0, 0.42, 1.5
LEFT, AXES = 0.23, 0.55
"""Of the width: names of rows, and the rows."""
RESOLUTION = 900
"""Of a row: shorter gaps between spans of one kind are not drawn."""
SUFFIXES = (".svg", ".png", ".pdf")


def draw_trace(trace: str | Path, picture: str | Path, *, first_cycle: int = 0, cycles: int = 6000) -> list[Row]:
    """Draw cycles of a trace that `heddle run --trace` wrote; return the rows that are shown.

    Raises UserError if the file is no such trace, shows nothing in these cycles, or matplotlib is not installed.
    """
    if Path(picture).suffix not in SUFFIXES:
        raise UserError(f"a picture is one of {', '.join(SUFFIXES)}; got {str(picture)!r}")
    if first_cycle < 0 or cycles < 1:
        raise UserError(f"cycles {first_cycle} to {first_cycle + cycles}; the first is 0 or more, and one is shown")
    tracks, about = read_trace(trace)
    rows = timeline_rows(tracks, first_cycle, cycles)
    if not rows:
        raise UserError(
            f"{trace} shows nothing in cycles {first_cycle} to {first_cycle + cycles}",
            hint=f"it shows cycles {about.get('cycles shown', 'of another program')}",
        )
    title = f"{about.get('kernel', 'trace')} on {about.get('gpu', 'a GPU')}"
    _draw(rows, title, Path(picture), (first_cycle, first_cycle + cycles))
    return rows


def covered(rows: list[Row]) -> list[float | None]:
    """Return the share of each row's arithmetic under products, of loads under any work; None for tensor cores."""
    tensor = [row for row in rows if row.name.startswith("tensor")]
    products = union(interval for row in tensor for interval in row.of())
    work = union([*products, *(interval for row in rows for interval in row.of(ARITHMETIC))])
    shares: list[float | None] = []
    for row in rows:
        computes = row.of(ARITHMETIC)
        shares.append(None if row in tensor else overlap(computes, products) if computes else overlap(row.of(), work))
    return shares


def captions(rows: list[Row]) -> list[str]:
    """Return what stands at the right of each row: how much of its time other work covers."""
    texts = []
    for row, share in zip(rows, covered(rows), strict=True):
        what = "its arithmetic under products" if row.of(ARITHMETIC) else "the time under products or arithmetic"
        texts.append("" if share is None else f"{100 * share:.0f} % of {what}")
    return texts


def _draw(rows: list[Row], title: str, picture: Path, window: tuple[int, int]) -> None:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a picture needs matplotlib", hint='pip install "heddle-gpu[pictures]"') from None
    height = ROW_INCHES * len(rows) + FRAME_INCHES
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "heddle", "font.size": 9}):
        figure = Figure(figsize=(WIDTH_INCHES, height))
        axes = figure.add_axes((LEFT, 1.0 / height, AXES, 1 - FRAME_INCHES / height))
        _rows(axes, rows, window)
        axes.set_title(title, loc="left")
        metadata: dict[str, Any] = {"Date": None} if picture.suffix == ".svg" else {}
        try:
            figure.savefig(picture, metadata=metadata)
        except OSError as problem:
            raise UserError(f"cannot write {str(picture)!r}: {problem.strerror or problem}") from None


def _rows(axes: Axes, rows: list[Row], window: tuple[int, int]) -> None:
    colours = _colours(rows)
    for number, (row, caption) in enumerate(zip(rows, captions(rows), strict=True)):
        for kind, colour in colours.items():
            pieces = _coarse([span for span in row.spans if span.kind == kind], (window[1] - window[0]) / RESOLUTION)
            ranges = [(begin, end - begin) for begin, end in pieces]
            axes.broken_barh(ranges, (number + 0.15, 0.7), facecolors=colour)
        axes.text(1.01, number + 0.5, caption, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_xlim(*window)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([n + 0.5 for n in range(len(rows))], [row.name for row in rows])
    axes.set_xlabel("SM cycle")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [axes.plot([], [], color=colour, linewidth=6, label=kind)[0] for kind, colour in colours.items()]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-LEFT / AXES, -1.26 / len(rows)), ncols=3, frameon=False
    )


def _colours(rows: list[Row]) -> dict[str, str]:
    """By kind: products by their lines first, in the order in which they begin."""
    kinds = dict.fromkeys(span.kind for row in rows for span in row.spans)
    lines = [kind for kind in kinds if kind not in COLOURS]
    found = {line: PRODUCT_COLOURS[number % len(PRODUCT_COLOURS)] for number, line in enumerate(lines)}
    return found | {kind: colour for kind, colour in COLOURS.items() if kind in kinds}


def _coarse(spans: list[Span], resolution: float) -> list[tuple[int, int]]:
    """Join spans whose gap nobody could see."""
    joined: list[tuple[int, int]] = []
    for span in spans:
        if joined and span.begin - joined[-1][1] < resolution:
            joined[-1] = (joined[-1][0], max(span.end, joined[-1][1]))
        else:
            joined.append((span.begin, span.end))
    return joined
