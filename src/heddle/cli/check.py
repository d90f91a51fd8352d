"""`heddle check`: execute a kernel with real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import Assignments, Gpu, JsonFile, Mode, assignments, check_outputs, check_store, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle check gemm --gpu h100 --set m=1000 --set n=1224 --set k=520"


def command(
    kernel: Annotated[str, typer.Argument(help="A kernel of `heddle kernels`.")],
    gpu: Gpu,
    mode: Mode = "simt",
    parameters: Assignments = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random inputs.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Execute a kernel with real numbers in the simulated order; compare with the reference and report hazards."""
    from heddle.study.checks import check, check_sizes
    from heddle.study.runs import request

    check_outputs(json=json_file)
    check_store()
    asked = request(kernel, gpu, mode=mode, texts=check_sizes(kernel, dict(assignments(parameters))))
    with progress("executing"):
        row = check(asked, seed=seed)
    emit(row, json_file, lambda out: show(row, out))
    if not row["passed"]:
        raise typer.Exit(1)


def show(row: dict[str, Any], out: Console) -> None:
    """Print the verdict, the error and the hazards."""
    params = " ".join(f"{name}={value}" for name, value in row["params"].items())
    out.print(f"{row['kernel']} on {row['gpu']} ({row['mode']}): {params}")
    verdict = "passed" if row["passed"] else "FAILED"
    out.print(f"{verdict}: relative error {row['relative_error']:.2e} (allowed {row['tolerance']:.0e})")
    for step in row.get("steps", ()):
        out.print(
            f"step {step['name']} ({step['kernel']}): {'passed' if step['passed'] else 'FAILED'}, relative error "
            f"{step['relative_error']:.2e} against its own reference{'; ' if step['note'] else ''}{step['note']}"
        )
    out.print(f"hazards: {len(row['hazards']) or 'none'}")
    for hazard in row["hazards"]:
        out.print(f"  {hazard}")
