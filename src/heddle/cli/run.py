"""`heddle run`: simulate one kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from heddle.cli.common import (
    STANDARD_OUTPUT,
    Assignments,
    Gpu,
    JsonFile,
    Mode,
    assignments,
    check_outputs,
    check_store,
    emit,
    names_in,
    progress,
)
from heddle.errors import UserError

EXAMPLE = "heddle run gemm --gpu h100 --set m=4096 --set n=4096 --set k=4096"

ClockMhz = Annotated[float | None, typer.Option("--clock-mhz", metavar="X", help="SM clock; else the clock model.")]
L2State = Annotated[str, typer.Option("--l2", metavar="STATE", help="L2 before the kernel: warm, cold or flushed.")]
Simulation = Annotated[str, typer.Option("--simulation", metavar="S", help="auto, representative (one cluster), chip.")]


def command(
    kernel: Annotated[str, typer.Argument(help="A kernel of `heddle kernels`.")],
    gpu: Gpu,
    mode: Mode = "simt",
    parameters: Assignments = None,
    clock_mhz: ClockMhz = None,
    l2: L2State = "warm",
    simulation: Simulation = "auto",
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE.pftrace", help="Write a timeline for ui.perfetto.dev.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Add stalls by source line and by instruction.")] = False,
    oracle: Annotated[
        str | None, typer.Option("--oracle", metavar="NAMES", help="Idealise, comma-separated: dp, fs, rs.")
    ] = None,
    off: Annotated[
        str | None, typer.Option("--off", metavar="NAMES", help="Switch off, comma-separated: order, barriers, data.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Simulate a kernel: time, where the cycles go, and what limits it."""
    from heddle.metrics.render import report as report_of
    from heddle.study.composites import refuse
    from heddle.study.runs import request, run, write_timeline

    check_outputs(json=json_file, trace=trace)
    if trace in STANDARD_OUTPUT:
        raise UserError("--trace writes a binary file, not to standard output")
    check_store()
    asked = request(
        kernel, gpu, mode=mode, clock_mhz=clock_mhz, l2_state=l2, simulation=simulation, profile=profile,
        oracle=names_in("--oracle", oracle), off=names_in("--off", off), texts=assignments(parameters),
    )  # fmt: skip
    if trace is not None:
        refuse(asked, "a timeline")
    with progress("simulating") as report:
        row = run(asked, progress=report)
        if trace is not None:
            write_timeline(asked, row, trace)
    emit(row, json_file, lambda out: out.print(report_of(row)))
