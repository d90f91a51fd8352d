"""`heddle machines`: the GPUs that are described, and every value with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, emit

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle machines h100"


def command(
    name: Annotated[str | None, typer.Argument(help="A machine or a TOML file; all without it.")] = None,
    json_file: JsonFile = None,
) -> None:
    """List machine descriptions, or print one resolved: each value with unit, kind and source."""
    from heddle.study.catalog import machine_row, machine_rows

    check_outputs(json=json_file)
    if name is None:
        rows = machine_rows()
        emit({"machines": rows}, json_file, lambda out: show_all(rows, out))
    else:
        row = machine_row(name)
        emit(row, json_file, lambda out: show_one(row, out))


def show_all(rows: list[dict[str, Any]], out: Console) -> None:
    """Print one line a machine."""
    from rich.table import Table

    table = Table(
        "machine", "architecture", "SMs", "max MHz", "fp16 TFLOP/s at max MHz", "usable L2 MiB", "DRAM GB/s", "what"
    )
    for row in rows:
        table.add_row(
            row["name"], row["architecture"], str(row["sms"]), f"{row['max_clock_mhz']:.0f}",
            f"{row['peak_tflops']:.0f}", f"{row['l2_bytes'] / 2**20:.0f}", f"{row['dram_gbytes_per_s']:.0f}",
            row["description"],
        )  # fmt: skip
    out.print(table)


def show_one(row: dict[str, Any], out: Console) -> None:
    """Print every value of a machine."""
    from rich.table import Table

    out.print(f"{row['name']}: {row['description']}")
    table = Table("field", "value", "unit", "kind")
    table.add_column("source", overflow="fold")
    for value in row["values"]:
        source = "; ".join(part for part in (value["source"], value["note"]) if part)
        table.add_row(value["field"], value["value"], value["unit"], value["kind"], source)
    out.print(table)
