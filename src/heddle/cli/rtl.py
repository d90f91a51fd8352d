"""`heddle rtl`: the hardware units, their tests, proofs, synthesis and cost."""

from __future__ import annotations

from collections import Counter
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
    """Map the units to the cells of a library: cells, area and timing at the paper's clock, before layout."""
    from heddle.cost.blocks import block_named, blocks
    from heddle.cost.synth import Flow, library, synthesise
    from heddle.cost.tools import YOSYS, need
    from heddle.cost.unit_cost import CLOCK_GHZ, cost_of
    from heddle.cost.verilog import sources
    from heddle.machine import machine, with_fiber

    check_outputs(json=json_file)
    target = with_fiber(machine(gpu))
    named = [block_named(name, target) for name in units or blocks(target)]
    need([YOSYS], "synthesis")
    flow, rows = Flow(tuple(sources()), library(liberty)), []
    with progress("mapping") as report:
        for done, block in enumerate(named):
            report(done, len(named), block.name)
            netlist = synthesise(block.module, block.parameters, flow, prove)
            by_cell = Counter(one.kind for one in netlist.cells.values())
            row = asdict(cost_of(netlist)) | {"unit": block.name, "copies": block.copies, "by_cell": dict(by_cell)}
            rows.append(row)
    data = {"gpu": gpu, "liberty": flow.liberty.name, "clock_ghz": CLOCK_GHZ, "netlists": rows}
    emit(data, json_file, lambda out: _show_netlists(rows, flow.liberty.name, out))


def _show_netlists(rows: list[dict[str, Any]], cells: str, out: Console) -> None:
    from rich.table import Table

    table = Table("unit", *("an SM has", "cells", "buffers", "area", "flops", "arrival ps", "slack ps", "stages"))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        times = (f"{row['arrival_ps']:.0f}", f"{row['slack_ps']:.0f}", str(row["stages"]))
        areas = (f"{row['area']:.1f}", f"{row['flop_area']:.1f}")
        table.add_row(row["unit"], *(str(row[name]) for name in ("copies", "cells", "buffers")), *areas, *times)
    out.print(table)
    out.print(
        f"cells of {cells}; area of one in its unit (square micrometres). Slack of a period at 2.5 GHz, with a tenth "
        "of it before and after the unit; stages of pipeline that meet it. Before layout: no wires, no clock tree."
    )


@app.command(name="report", epilog="Example: heddle rtl report --liberty my7nm.lib --wire-um 50")
def report_costs(
    gpu: Gpu = GPU,
    liberty: Annotated[
        Path | None, typer.Option("--liberty", metavar="FILE", help="Cells of 7 nm; without it osu018, scaled.")
    ] = None,
    wire_um: Annotated[
        float, typer.Option("--wire-um", metavar="X", min=0, help="Length of the wires of a crossbar's word.")
    ] = 100.0,
    load: Annotated[
        float, typer.Option("--load", metavar="X", min=0, max=1, help="Share of the events of a full cycle.")
    ] = 1.0,
    json_file: JsonFile = None,
) -> None:
    """The cost of FIBER's units in an SM: area, power, latency, beside the paper's totals."""
    from heddle.cost.measure import measure
    from heddle.cost.synth import OSU018, library
    from heddle.cost.table import Assumptions, table
    from heddle.cost.tools import YOSYS, need
    from heddle.machine import machine, with_fiber

    check_outputs(json=json_file)
    need([YOSYS], "synthesis")
    target, cells = with_fiber(machine(gpu)), library(liberty)
    with progress("measuring") as report:
        measured = measure(target, cells, report)
    node = "180" if cells.name == OSU018.name else "7"
    data = table(measured, target, Assumptions(wire_um=wire_um, load=load, node=node))
    emit({"gpu": gpu, **data}, json_file, lambda out: _show_report(data, out))


def _show_report(data: dict[str, Any], out: Console) -> None:
    from rich.table import Table

    table = Table("unit", *("area um2", "power mW", "of it clock", "arrival ps", "slack ps", "stages"))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in (*data["rows"], *data["bitmap"], *data["others"]):
        power = "" if row.get("storage") == "sram" else f"{row['power_mw']:.2f}"
        area = f"{row['area_um2']:.0f}" if "area_um2" in row else ""
        times = [f"{row[name]:.0f}" if name in row else "" for name in ("arrival_ps", "slack_ps", "stages")]
        table.add_row(row["unit"], area, power, f"{row['clock_mw']:.2f}" if row.get("clock_mw") else "", *times)
    out.print(table)
    for name, total in {**data["totals"], "the paper": data["paper"]}.items():
        power = f"{total['power_mw']:.2f} mW ({total['power_share']:.2%})"
        bits = f" with bits in {name}" if name in data["totals"] else ", the paper (shares: under)"
        without = ", without power of the bits" if name == "sram" else ""
        out.print(f"in all{bits}: {total['area_mm2']:.4f} mm2 ({total['area_share']:.2%} of an SM), {power}{without}")
    for note in data["notes"]:
        out.print(f"- {note}")


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
