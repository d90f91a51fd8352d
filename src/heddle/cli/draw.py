"""`heddle draw`: a picture of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.common import JsonFile, check_outputs, emit

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle draw fa3.pftrace --out fa3.svg --first-cycle 8000 --cycles 6000"


def command(
    trace: Annotated[str, typer.Argument(metavar="FILE.pftrace", help="What `heddle run --trace` wrote.")],
    out: Annotated[str, typer.Option("--out", metavar="PICTURE", help="A file that ends in .svg, .png or .pdf.")],
    first_cycle: Annotated[int, typer.Option("--first-cycle", metavar="N", help="The first cycle that is shown.")] = 0,
    cycles: Annotated[int, typer.Option("--cycles", metavar="N", help="How many cycles are shown.")] = 6000,
    json_file: JsonFile = None,
) -> None:
    """Draw who multiplies, who computes and who waits in a timeline. Needs matplotlib."""
    from heddle.report.picture import captions, covered, draw_trace

    check_outputs(json=json_file, out=out)
    rows = draw_trace(trace, out, first_cycle=first_cycle, cycles=cycles)
    shown = [{"row": row.name, "covered": share} for row, share in zip(rows, covered(rows), strict=True)]
    lines = [
        f"{row.name}: {caption}" if caption else row.name for row, caption in zip(rows, captions(rows), strict=True)
    ]

    def show(console: Console) -> None:
        for line in lines:
            console.print(line)

    emit({"picture": out, "rows": shown}, json_file, show)
