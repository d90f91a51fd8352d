"""`heddle rtl`: the hardware units, their tests, proofs, synthesis and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="The hardware units of FIBER in Verilog.",
    epilog="Example: heddle rtl test --unit read_ports",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Units = Annotated[list[str] | None, typer.Option("--unit", metavar="NAME", help="A unit, again for more; else all.")]
Gpu = Annotated[str, typer.Option("--gpu", metavar="G", help="The machine whose parameters the units take.")]
GPU = "a100"


@app.command(name="test", epilog="Example: heddle rtl test --unit read_ports --cycles 5000")
def simulate(
    units: Units = None,
    gpu: Gpu = GPU,
    cycles: Annotated[int, typer.Option("--cycles", metavar="N", min=1, help="Random cycles of each unit.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another number, other cycles.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Simulate the Verilog together with the simulator's own units; they must agree on every output in every cycle."""
    from heddle.cost.cosimulate import cosimulate
    from heddle.cost.icarus import TOOLS
    from heddle.cost.tools import need
    from heddle.cost.units import UNITS, unit_named
    from heddle.machine import machine, with_fiber

    check_outputs(json=json_file)
    named = [unit_named(name) for name in units or UNITS]
    need(TOOLS, "simulating Verilog")
    target, rows = with_fiber(machine(gpu)), []
    with progress("simulating") as report:
        for done, unit in enumerate(named):
            report(done, len(named), unit.name)
            rows.append({"unit": unit.name, "cycles": cycles, "difference": cosimulate(unit, target, cycles, seed)})
    emit({"gpu": gpu, "seed": seed, "units": rows}, json_file, lambda out: _show_test(rows, out))
    if any(row["difference"] for row in rows):
        raise typer.Exit(1)


def _show_test(rows: list[dict[str, Any]], out: Console) -> None:
    for row in rows:
        verdict = f"DIFFERS: {row['difference']}" if row["difference"] else "as the simulator"
        out.print(f"{row['unit']}: {row['cycles']} random cycles: {verdict}")
