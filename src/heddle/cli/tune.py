"""`heddle tune`: search the configuration of a FIBER-native kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import Assignments, Gpu, JsonFile, assignments, check_outputs, check_store, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle tune gemm --gpu h100 --set m=4096 --set n=4096 --set k=4096"
SHOWN = 12  # of the configurations that were tried


def command(
    kernel: Annotated[str, typer.Argument(help="A kernel of `heddle kernels` that has mode fiber.")],
    gpu: Gpu,
    parameters: Assignments = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, metavar="N", help="Processes; all cores without.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Search the fastest configuration of a FIBER kernel with the simulator; a search that was stopped goes on."""
    from heddle.study.tune import tune

    check_outputs(json=json_file)
    check_store()
    with progress("tuning") as report:
        row = tune(kernel, gpu, jobs=jobs, progress=report, texts=assignments(parameters))
    emit(row, json_file, lambda out: show(row, out))


def show(row: dict[str, Any], out: Console) -> None:
    """Print what was tried, the winner and how to run it; of a sequence of launches, of each step."""
    for step in row.get("steps", ()):
        out.print(step["note"] or f"step {step['step']}:")
        if not step["note"]:
            show(step, out)
    if "steps" not in row:
        _show_one(row, out)


def _show_one(row: dict[str, Any], out: Console) -> None:
    from rich.table import Table

    params = " ".join(f"{name}={value}" for name, value in row["params"].items())
    out.print(f"{row['kernel']} on {row['gpu']} (fiber): {params}")
    table = Table("configuration", "cycles from a slice")
    for label, cycles in list(row["tried"].items())[:SHOWN]:
        table.add_row(label, f"{cycles:,}")
    out.print(table)
    winner, start = row["winner"], row["start"]
    out.print(f"tried {len(row['tried'])}, refused {len(row['refused'])}")
    out.print(f"in full: {start['config']}: {start['cycles']:,} cycles; {winner['config']}: {winner['cycles']:,}")
    pins = " ".join(f"--set {name}={value}" for name, value in winner["pins"].items())
    out.print(f"gain {row['gain']:.3f}x; run it with --mode fiber {pins}")
