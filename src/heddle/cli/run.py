"""`heddle run`: simulate one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import Assignments, Gpu, JsonFile, Mode, assignments, check_outputs, emit, percent, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle run gemm --gpu h100 --set m=4096 --set n=4096 --set k=4096"

ClockMhz = Annotated[float | None, typer.Option("--clock-mhz", metavar="X", help="SM clock; else the clock model.")]
L2State = Annotated[str, typer.Option("--l2", metavar="STATE", help="L2 before the kernel: warm, cold or flushed.")]
Simulation = Annotated[str, typer.Option("--simulation", metavar="S", help="representative (one cluster) or chip.")]


def command(
    kernel: Annotated[str, typer.Argument(help="A kernel of `heddle kernels`.")],
    gpu: Gpu,
    mode: Mode = "simt",
    parameters: Assignments = None,
    clock_mhz: ClockMhz = None,
    l2: L2State = "warm",
    simulation: Simulation = "representative",
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE.pftrace", help="Write a timeline for ui.perfetto.dev.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Add stalls by source line and by instruction.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Simulate a kernel: time, where the cycles go, and what limits it."""
    from heddle.study.runs import request, run, write_timeline

    check_outputs(json_file, trace)
    asked = request(
        kernel, gpu, mode=mode, clock_mhz=clock_mhz, l2_state=l2, simulation=simulation, profile=profile,
        texts=assignments(parameters),
    )  # fmt: skip
    with progress("simulating") as report:
        row = run(asked, progress=report)
        if trace is not None:
            write_timeline(asked, row, trace)
    emit(row, json_file, lambda out: show(row, out))


def show(row: dict[str, Any], out: Console) -> None:
    """Print a result: headline, speed of light, stalls."""
    from rich.table import Table

    params = " ".join(f"{name}={value}" for name, value in row["params"].items())
    out.print(f"{row['kernel']} on {row['gpu']} ({row['mode']}): {params}")
    out.print(
        f"{row['time_us']:.2f} us, {row['tflops']:.1f} TFLOP/s, {row['cycles']} cycles at {row['clock_mhz']:.0f} MHz "
        f"({row['provenance']['clock_source']})"
    )
    table = Table("resource", "use", title="How busy", title_justify="left")
    table.add_row("tensor (useful FLOPs)", percent(row["tensor_utilization"]))
    for pipe, share in sorted(row["pipes"].items(), key=lambda item: -item[1]):
        table.add_row(pipe, percent(share))
    table.add_row("issue slots", percent(row["issue_utilization"]))
    table.add_row("occupancy", percent(row["occupancy"]))
    out.print(table)
    out.print(stall_table(row["stalls_by_role"], row["stalls"]))
    for line in row.get("by_line", [])[:0]:
        out.print(line)


def stall_table(by_role: dict[str, dict[str, float]], total: dict[str, float]) -> Any:
    """Return the table of warp states by role; states below 0.05 % everywhere are left out."""
    from rich.table import Table

    table = Table("state", *by_role, "all", title="Where the warp cycles go", title_justify="left")
    for state in sorted(total, key=lambda name: (name != "issued", -total[name])):
        shares = [*(row.get(state, 0.0) for row in by_role.values()), total[state]]
        if max(shares) >= 0.0005:
            table.add_row(state, *(percent(share) for share in shares))
    return table
