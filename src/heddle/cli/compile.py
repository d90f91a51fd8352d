"""`heddle compile`: the warp program of a kernel as text, or as instruction words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.common import (
    STANDARD_OUTPUT,
    Assignments,
    Gpu,
    JsonFile,
    Mode,
    assignments,
    check_outputs,
    check_store,
    emit,
    progress,
    write_text,
)

if TYPE_CHECKING:
    from heddle.ir.warp import WarpProgram

BINARY = ".cubin"
EXAMPLE = "heddle compile gemm --gpu a100 --set m=1024 --set n=1024 --set k=1024 -o gemm.warp"


def command(
    kernel: Annotated[str, typer.Argument(help="A kernel of `heddle kernels`.")],
    gpu: Gpu,
    mode: Mode = "simt",
    parameters: Assignments = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the text here; - is standard output. *.cubin: instruction words.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compile a kernel and print its warp program: instructions, registers, barriers, source lines.

    With -o FILE.cubin the program is written as instruction words of the GPU's generation (docs/reference/binary.md).
    """
    from heddle.ir.warp_text import print_program
    from heddle.study.runs import compiled, request

    check_outputs(output=output, json=json_file)
    check_store()
    asked = request(kernel, gpu, mode=mode, texts=assignments(parameters))
    with progress("choosing the tile"):
        program = compiled(asked)
    text = print_program(program)
    if output is not None and output.endswith(BINARY):
        write_binary(program, Path(output))
    elif output is not None or json_file is None:
        write_text(text, output or STANDARD_OUTPUT[0])
    if json_file is not None:
        row = {
            "kernel": kernel,
            "gpu": asked.machine.name,
            "mode": mode,
            "params": dict(program.params),
            "instructions": len(program.instructions),
            "roles": {role.name: role.registers_per_thread for role in program.roles},
            "shared_memory_bytes": program.shared_memory_bytes,
            "text": text,
        }
        emit(row, json_file, lambda out: None)


def write_binary(program: WarpProgram, path: Path) -> None:
    """Write a program as a file of instruction words, whole or not at all. Raises UserError."""
    from heddle.files import written_whole
    from heddle.isa.emission.binary import cubin_bytes

    data = cubin_bytes(program)
    with written_whole(path) as file:
        file.write(data)
