"""`heddle bench`: how fast Heddle itself is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle bench --json bench.json"


def command(
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each; the median counts.")] = 5,
    json_file: JsonFile = None,
) -> None:
    """Measure the speed of the engine and the compiler in thread CPU time, and ratios that do not depend on the
    computer.
    """
    from heddle.study.bench import bench

    check_outputs(json=json_file)
    with progress("measuring") as report:
        row = bench(repeats, progress=report)
    emit(row, json_file, lambda out: show(row, out))


def show(row: dict[str, Any], out: Console) -> None:
    """Print one line a measurement."""
    from rich.table import Table

    table = Table(
        "what", "warp instructions", "event loop, ms", "million a second", "ratio to fan", "whole simulation, ms"
    )
    for item in row["engine"]:
        table.add_row(
            item["name"], str(item["warp_instructions"]), f"{1e3 * item['loop_cpu_s']:.1f}",
            f"{item['instructions_per_s'] / 1e6:.1f}", f"{item['ratio']:.2f}", f"{1e3 * item['simulate_cpu_s']:.0f}",
        )  # fmt: skip
    out.print(table)
    for item in row["compiler"]:
        out.print(f"compile {item['name']}: {1e3 * item['cpu_s']:.0f} ms CPU, {item['instructions']} instructions")
