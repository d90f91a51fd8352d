"""`heddle compare`: today's kernel against FIBER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import (
    STANDARD_OUTPUT,
    Assignments,
    JsonFile,
    MarkdownFile,
    assignments,
    check_outputs,
    check_store,
    emit,
    page_of,
    progress,
    write_text,
)
from heddle.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

ALL = "heddle compare --all"
"""Stands in the marks of a page that has its tables."""
EXAMPLE = "heddle compare attention --gpu h100 --ablate"

MaybeGpu = Annotated[
    str | None, typer.Option("--gpu", metavar="G", help="A machine name or a TOML file; with --all: only this one.")
]


def command(
    kernel: Annotated[str | None, typer.Argument(help="A kernel of `heddle kernels`; none with --all.")] = None,
    gpu: MaybeGpu = None,
    parameters: Assignments = None,
    every: Annotated[bool, typer.Option("--all", help="The table of all kernels, GPUs and sizes; resumable.")] = False,
    ablate: Annotated[bool, typer.Option("--ablate", help="Add the steps from the baseline to all of FIBER.")] = False,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Add today's kernel with something idealised; part of --ablate on sm_90.")
    ] = False,
    power: Annotated[
        bool, typer.Option("--power", help="Add the power of FIBER's units in the kernel; one more simulation.")
    ] = False,
    clock_mhz: Annotated[
        float | None, typer.Option("--clock-mhz", metavar="X", help="SM clock of all runs; else the baseline's.")
    ] = None,
    l2: Annotated[
        str, typer.Option("--l2", metavar="STATE", help="L2 before the kernels: warm, cold or flushed.")
    ] = "warm",
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE.pftrace", help="Write a timeline of the FIBER kernel.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, metavar="N", help="Processes; all cores without.")
    ] = None,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Compare today's kernel, the control and the FIBER kernel: speed-up, ceiling, where the cycles go."""
    check_outputs(json=json_file, trace=trace, markdown=markdown)
    if trace in STANDARD_OUTPUT:
        raise UserError("--trace writes a binary file, not to standard output")
    values = assignments(parameters)
    if every and (kernel or values or ablate or oracle or trace or power):
        raise UserError(
            "--all takes no kernel, --set, --ablate, --oracle, --power or --trace",
            hint="--gpu G is one machine's part of it",
        )
    if markdown is not None and not every:
        raise UserError("--markdown writes the tables of --all", hint="--json has one comparison")
    check_store()
    if every:
        _all(gpu, jobs, json_file, markdown)
        return
    if kernel is None or gpu is None:
        raise UserError("compare needs a kernel and --gpu G, or --all", hint=f"for example: {EXAMPLE}")
    options = {"ablate": ablate, "oracle": oracle, "clock_mhz": clock_mhz, "l2_state": l2, "jobs": jobs}
    _one(kernel, gpu, values, options, trace, json_file, power)


def _one(
    kernel: str,
    gpu: str,
    values: dict[str, Any],
    options: dict[str, Any],
    trace: str | None,
    json_file: str | None,
    power: bool,
) -> None:
    """Make and show one comparison."""
    from heddle.cli.power import power_of, refuse_power
    from heddle.report.comparison import report as report_of
    from heddle.study.compare import compare, refuse_timeline, write_timeline

    if trace is not None:
        refuse_timeline(kernel, gpu, values)
    if power:
        refuse_power(kernel, gpu, values)
    with progress("comparing") as report:
        row = compare(kernel, gpu, progress=report, texts=values, **options)
        if trace is not None:
            write_timeline(row, gpu, trace)
        if power:
            row = {**row, "power": power_of(row, gpu, values, report)}
    emit(row, json_file, lambda out: _show(row, report_of(row), out))
    if trace is not None:
        typer.echo(f"timeline: {trace} (open it at ui.perfetto.dev)", err=json_file in STANDARD_OUTPUT)


def _show(row: dict[str, Any], text: Any, out: Console) -> None:
    from heddle.cli.power import show_power

    out.print(text)
    if "power" in row:
        show_power(row["power"], out)


def _all(gpu: str | None, jobs: int | None, json_file: str | None, markdown: str | None) -> None:
    from rich.console import Group

    from heddle.report.comparison import overview, reasons, remarks_of
    from heddle.report.comparison_markdown import document
    from heddle.report.markdown import into_page
    from heddle.study.compare_all import compare_all

    page_of(markdown, [ALL])  # refused at once; read again at the end, as it may change meanwhile
    with progress("comparing") as report:
        rows: list[dict[str, Any]] = compare_all(gpu, jobs=jobs, progress=report)
    if markdown is not None:
        write_text(into_page(page_of(markdown, [ALL]), ALL, document(rows)), markdown)
    tables = Group() if markdown in STANDARD_OUTPUT else Group(overview(rows), reasons(rows), *remarks_of(rows))
    emit({"comparisons": rows}, json_file, lambda out: out.print(tables))
    if failed := sum("failed" in row for row in rows):
        typer.echo(f"heddle: {failed} of {len(rows)} comparisons failed", err=True)
        raise typer.Exit(1)
