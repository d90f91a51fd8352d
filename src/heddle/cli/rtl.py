"""`heddle rtl`: the hardware units, their tests, proofs, synthesis and cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
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


@app.command(name="formal", epilog="Example: heddle rtl formal --unit weft_context")
def prove_units(
    units: Units = None,
    faults: Annotated[bool, typer.Option("--faults", help="Also show that deliberate faults are caught.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Prove what the units promise, for all inputs and without a bound."""
    from heddle.cost.formal import PROOFS, TOOLS, proof_of, prove
    from heddle.cost.tools import need

    check_outputs(json=json_file)
    named = [proof_of(name) for name in units or PROOFS]
    need(TOOLS, "proving")
    rows: list[dict[str, Any]] = []
    with progress("proving") as report:
        for done, proof in enumerate(named):
            report(done, len(named), proof.unit)
            rows.append({"unit": proof.unit, "fault": "", "proven": prove(proof), "right": True})
            for fault in proof.faults if faults else ():
                report(done, len(named), f"{proof.unit} with a fault")
                rows.append({"unit": proof.unit, "fault": fault.wrong, "proven": prove(proof, fault), "right": False})
    emit({"proofs": rows}, json_file, lambda out: _show_proofs(rows, out))
    if any(row["proven"] != row["right"] for row in rows):
        raise typer.Exit(1)


@app.command(name="synth", epilog="Example: heddle rtl synth --unit selector --prove")
def synthesise_units(
    units: Units = None,
    gpu: Gpu = GPU,
    liberty: Annotated[
        Path | None, typer.Option("--liberty", metavar="FILE", help="Cells; without it Debian's osu018 (180 nm).")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Prove netlist and source equal (units without memory).")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Map the units to the cells of a library: cells and area, before layout."""
    from heddle.cost.synth import NETLISTS, library, synthesise
    from heddle.cost.tools import YOSYS, need
    from heddle.cost.verilog import parameters_of, sources
    from heddle.errors import unknown_name
    from heddle.machine import machine, with_fiber

    check_outputs(json=json_file)
    for name in units or ():
        if name not in NETLISTS:
            raise unknown_name("unit to synthesise", name, NETLISTS)
    need([YOSYS], "synthesis")
    cells, target = library(liberty), with_fiber(machine(gpu))
    rows = []
    with progress("mapping") as report:
        for done, name in enumerate(units or NETLISTS):
            report(done, len(units or NETLISTS), name)
            rows.append(asdict(synthesise(name, sources(), parameters_of(target, name), cells, prove)))
    data = {"gpu": gpu, "liberty": cells.name, "netlists": rows}
    emit(data, json_file, lambda out: _show_netlists(rows, cells.name, out))


def _show_netlists(rows: list[dict[str, Any]], cells: str, out: Console) -> None:
    for row in rows:
        out.print(f"{row['unit']}: {row['cells']} cells, area {row['area']:.1f}, of it flops {row['flop_area']:.1f}")
    out.print(f"cells of {cells}; areas in its unit (square micrometres), before layout: no wires, no clock tree")


def _show_proofs(rows: list[dict[str, Any]], out: Console) -> None:
    for row in rows:
        if row["right"]:
            out.print(f"{row['unit']}: {'proven' if row['proven'] else 'REFUTED'}")
        else:
            verdict = "NOT CAUGHT" if row["proven"] else "caught"
            out.print(f"{row['unit']} with the fault {row['fault']}: {verdict}")


def _show_test(rows: list[dict[str, Any]], out: Console) -> None:
    for row in rows:
        verdict = f"DIFFERS: {row['difference']}" if row["difference"] else "as the simulator"
        out.print(f"{row['unit']}: {row['cycles']} random cycles: {verdict}")
