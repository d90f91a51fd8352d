"""`heddle lift`: machine code as a warp program, and how it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, emit, write_text
from heddle.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from heddle.ir.warp import WarpProgram

EXAMPLE = "heddle lift kernel.cubin --kernel gemm --trips 16 --ctas 108 --gpu a100"


def command(
    file: Annotated[Path, typer.Argument(help="A cubin: of NVIDIA's compiler, patched, or of `heddle compile`.")],
    kernel: Annotated[str | None, typer.Option("--kernel", metavar="NAME", help="Which, if there are several.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="G", help="Simulate it there.")] = None,
    warps: Annotated[int, typer.Option("--warps", metavar="N", help="Of a block; 0: as the file says.")] = 0,
    ctas: Annotated[int, typer.Option("--ctas", metavar="N", help="Blocks that are launched.")] = 1,
    trips: Annotated[int, typer.Option("--trips", metavar="N", help="Rounds of each loop.")] = 1,
    take: Annotated[
        str, typer.Option("--take", metavar="OFFSETS", help="Branches forward that are taken, as 0x290,0x4b0.")
    ] = "",
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the text here.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Turn a kernel of a cubin into a warp program, say what of it is not modelled, and simulate it.

    Loop counts, conditions and addresses are not in machine code: docs/reference/lift.md says what stands for them.
    """
    from heddle.frontends.sass.lift import Lifted, lift
    from heddle.ir.warp_text import print_program
    from heddle.isa.cubin.cubin import read_cubin
    from heddle.isa.emission.binary import compiled_program, is_compiled

    check_outputs(output=output, json=json_file)
    cubin = read_cubin(file)
    if is_compiled(cubin):
        program = compiled_program(cubin, kernel)
        found = Lifted(program, len(program.instructions), {})
    else:
        found = lift(cubin, kernel, warps=warps, ctas=ctas, trips=trips, take=offsets(take))
    if output is not None:
        write_text(print_program(found.program), output)
    row: dict[str, Any] = {
        "file": str(file),
        "kernel": found.program.name,
        "architecture": found.program.architecture,
        "mode": found.program.mode,
        "instructions": found.instructions,
        "unmodelled": dict(sorted(found.unmodelled.items(), key=lambda item: (-item[1], item[0]))),
        "result": simulated(found.program, gpu) if gpu is not None else None,
    }
    emit(row, json_file, lambda out: show(row, out))


def offsets(text: str) -> frozenset[int]:
    """Return the numbers of a list with commas. Raises UserError."""
    try:
        return frozenset(int(part, 0) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UserError(f"--take {text!r} is no list of offsets", hint="for example --take 0x290,0x4b0") from error


def simulated(program: WarpProgram, gpu: str) -> dict[str, Any]:
    """Return the result of a program on a machine at its highest clock. Raises UserError."""
    from heddle import pipeline
    from heddle.ir.warp_verify import verify
    from heddle.machine.load import machine as load_machine
    from heddle.machine.load import with_fiber

    machine = load_machine(gpu)
    if program.mode != "simt":
        machine = with_fiber(machine)
    if machine.architecture != program.architecture:
        raise UserError(f"{program.name} is code of {program.architecture}; {machine.name} is {machine.architecture}")
    verify(program, machine)
    clock = machine.max_clock_mhz
    result = pipeline.simulate_program(program, machine, clock_mhz=clock)
    return pipeline.explain(result, program, machine, clock_mhz=clock, wall_s=0.0)


def show(row: Mapping[str, Any], out: Console) -> None:
    """Print what was found, what is not modelled, and the time."""
    missing = sum(row["unmodelled"].values())
    out.print(f"{row['kernel']} ({row['architecture']}, {row['mode']}): {row['instructions']} instructions")
    names = ", ".join(f"{name} {count}" for name, count in row["unmodelled"].items())
    out.print(f"not modelled: {missing or 'none'}{f' ({names})' if names else ''}")
    if row["result"] is not None:
        result = row["result"]
        out.print(
            f"{result['gpu']}: {result['cycles']} cycles, {result['time_us']:.2f} us at {result['clock_mhz']:g} MHz"
        )
