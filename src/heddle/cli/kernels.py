"""`heddle kernels`: what can be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, emit

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle kernels gemm"


def command(
    name: Annotated[str | None, typer.Argument(help="A kernel; all of them without it.")] = None,
    json_file: JsonFile = None,
) -> None:
    """List kernels, or print one: parameters, machines, modes."""
    from heddle.study.catalog import kernel_row, kernel_rows

    check_outputs(json=json_file)
    if name is None:
        rows = kernel_rows()
        emit({"kernels": rows}, json_file, lambda out: show_all(rows, out))
    else:
        row = kernel_row(name)
        emit(row, json_file, lambda out: show_one(row, out))


def show_all(rows: list[dict[str, Any]], out: Console) -> None:
    """Print one line a kernel."""
    from rich.table import Table

    table = Table("kernel", "what", "parameters", "architectures", "modes")
    for row in rows:
        names = " ".join(parameter["name"] for parameter in row["parameters"])
        table.add_row(row["name"], row["summary"], names, " ".join(row["architectures"]), " ".join(row["modes"]))
    out.print(table)


def show_one(row: dict[str, Any], out: Console) -> None:
    """Print one kernel with its parameters."""
    from rich.table import Table

    out.print(f"{row['name']}: {row['summary']}")
    out.print(f"architectures: {', '.join(row['architectures'])}")
    for gpu, modes in row["modes_on"].items():
        out.print(f"modes on {gpu}: {', '.join(modes)}")
    for gpu, steps in row["steps"].items():
        launches = [f"{step['count']} {step['name']} ({step['kernel']})" for step in steps]
        out.print(f"launches on {gpu}: {', '.join(launches)}")
    table = Table("parameter", "type", "default", "allowed", "meaning")
    for parameter in row["parameters"]:
        name, form, default = parameter["name"], parameter["type"], str(parameter["default"])
        table.add_row(name, form, default, parameter["allowed"], parameter["meaning"])
    for field in row["tile"]:
        table.add_row(field["name"], field["type"], "chosen", field["allowed"], field["meaning"])
    out.print(table)
    for architecture, fields in ((name, fields) for name, fields in row["native_tile"].items() if fields):
        table = Table("parameter", "type", "default", "allowed", "meaning", title=f"in mode fiber on {architecture}")
        for field in fields:
            table.add_row(field["name"], field["type"], "chosen", field["allowed"], field["meaning"])
        out.print(table)
