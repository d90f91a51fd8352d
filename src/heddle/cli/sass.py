"""`heddle sass`: cubins shown, checked and patched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.common import JsonFile, check_outputs, emit, progress
from heddle.cli.sass_print import bound, show_claims, show_differences, show_kernels
from heddle.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.isa.cubin.cubin import Cubin

app = typer.Typer(
    help="Machine code of real GPUs (cubins): show, check, and make it run on FIBER hardware.",
    epilog="Example: heddle sass show kernel.cubin",
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[Path, typer.Argument(help="A cubin.")]


@app.command(epilog="Example: heddle sass show kernel.cubin --kernel saxpy --json -")
def show(
    file: File,
    kernel: Annotated[str | None, typer.Option("--kernel", metavar="NAME", help="One kernel; else all.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Print the kernels of a cubin: resources, instructions with their control field, live registers, source lines."""
    from heddle.isa.cubin.cubin import read_cubin
    from heddle.isa.cubin.show import kernel_row

    check_outputs(json=json_file)
    cubin = read_cubin(file)
    kernels = [cubin.kernel(kernel)] if kernel else list(cubin.kernels)
    rows = [kernel_row(cubin, one) for one in kernels]
    data = {"file": str(file), "architecture": f"sm_{cubin.sm}", "kernels": rows}
    emit(data, json_file, lambda out: show_kernels(rows, out))


@app.command(epilog="Example: heddle sass check patched.cubin --original kernel.cubin")
def check(
    file: Annotated[Path | None, typer.Argument(help="A cubin.")] = None,
    original: Annotated[
        Path | None, typer.Option("--original", metavar="FILE", help="The cubin that FILE was made from.")
    ] = None,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge", help="By NVIDIA's disassembler (extra `sass`): registers, live ones, and what --original says."
        ),
    ] = False,
    summary: Annotated[
        Path | None, typer.Option("--summary", metavar="DIR", help="Report on all cubins below a folder instead.")
    ] = None,
    above: Annotated[int, typer.Option("--above", metavar="N", min=0, help="Live registers to count above.")] = 128,
    json_file: JsonFile = None,
) -> None:
    """Check a cubin: the 13 bits, live registers; with --original, that it is the same program but for FIBER code."""
    from heddle.isa.cubin.cubin import read_cubin
    from heddle.isa.cubin.report import cubins_below

    check_outputs(json=json_file)
    if (file is None) == (summary is None):
        raise UserError("give either a cubin or --summary DIR", hint="heddle sass check --summary DIR")
    if summary is not None:
        if judge:
            _judge_life(cubins_below(summary), str(summary), json_file)
        else:
            _check_folder(cubins_below(summary), json_file)
        return
    assert file is not None
    if original is not None:
        _check_patch(file, original, judge, json_file)
    elif judge:
        _judge_life([read_cubin(file)], str(file), json_file)
    else:
        _check_file(file, above, json_file)


def _check_folder(cubins: Iterable[Cubin], json_file: str | None) -> None:
    from heddle.isa.claims import claims_row
    from heddle.isa.cubin.report import claims_of

    found = claims_of(cubins)
    emit({"summary": [claims_row(one) for one in found.values()]}, json_file, lambda out: show_claims(found, out))


def _judge_life(cubins: Iterable[Cubin], what: str, json_file: str | None) -> None:
    """Hold registers read and written, and live ones, against NVIDIA's disassembler. Exit code 1 where they differ."""
    from heddle.isa.cubin.life_judge import LifeVerdict, judge_life

    total = LifeVerdict()
    with progress("life ranges") as report:
        for done, cubin in enumerate(cubins):
            report(done, 0, cubin.what)
            total.add(judge_life(cubin))
    data = {"judged": what, "sections": total.sections, "instructions": total.instructions, "raw": total.raw,
            "role_differences": total.roles, "life_differences": total.live}  # fmt: skip

    def show_all(out: Console) -> None:
        show_differences([*total.roles, *total.live], out)
        out.print(
            f"{total.instructions} instructions in {total.sections} sections of code, {total.raw} of unknown opcodes: "
            f"registers differ in {len(total.roles)}, live registers in {len(total.live)}"
        )

    emit(data, json_file, show_all)
    if total.roles or total.live:
        raise typer.Exit(1)


def _check_file(file: Path, above: int, json_file: str | None) -> None:
    from heddle.isa.claims import claims_row
    from heddle.isa.cubin.cubin import read_cubin
    from heddle.isa.cubin.report import claims_of, pressure_of, pressure_row

    cubin = read_cubin(file)
    claims = claims_of([cubin])
    with progress("live registers") as report:
        pressures = []
        for done, kernel in enumerate(cubin.kernels):
            report(done, len(cubin.kernels), kernel.name)
            pressures.append(pressure_of(cubin, kernel, above))

    def show_all(out: Console) -> None:
        from rich.table import Table

        show_claims(claims, out)
        table = Table("kernel", "instructions", "most live registers", f"share above {above}")
        for one in pressures:
            table.add_row(one.kernel, str(one.instructions), str(one.most), f"{one.share:.1%}")
        out.print(table)
        if raw := sum(one.raw for one in pressures):
            out.print(bound(raw), soft_wrap=True)

    rows = [pressure_row(one, above) for one in pressures]
    emit(
        {"file": str(file), "claims": [claims_row(one) for one in claims.values()], "kernels": rows},
        json_file,
        show_all,
    )


def _kernels(count: int) -> str:
    return "1 kernel" if count == 1 else f"{count} kernels"


def _check_patch(file: Path, original: Path, judge: bool, json_file: str | None) -> None:
    from heddle.isa.cubin.compare import compare
    from heddle.isa.cubin.cubin import read_cubin
    from heddle.isa.cubin.judge import judge as by_nvidia

    before, after = read_cubin(original), read_cubin(file)
    differences, judged = compare(before, after), None
    if judge:
        verdict = by_nvidia(before, after)
        differences += verdict.differences
        judged = {"instructions": verdict.instructions, "references": verdict.references, "lines": verdict.lines}
    data = {"file": str(file), "original": str(original), "differences": differences, "judged_by_nvidia": judged}

    def show_all(out: Console) -> None:
        show_differences(differences, out)
        by = f"; NVIDIA's disassembler read {judged['instructions']} instructions" if judged else ""
        out.print(f"{_kernels(len(before.kernels))}, {len(differences)} differences beside FIBER instructions{by}")

    emit(data, json_file, show_all)
    if differences:
        raise typer.Exit(1)


@app.command(epilog="Example: heddle sass patch kernel.cubin --fibers 256 -o patched.cubin")
def patch(
    file: File,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write the patched cubin here.")],
    fibers: Annotated[
        int | None,
        typer.Option("--fibers", metavar="N", min=1, help="Threads of a block; else what each kernel says itself."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Make a cubin CUDA-native on FIBER hardware: SET_FIBER_NUM before each kernel, all tables moved along, checked."""
    from heddle.errors import InternalError
    from heddle.files import written_whole
    from heddle.isa.cubin.compare import compare
    from heddle.isa.cubin.cubin import parse_cubin, read_cubin
    from heddle.isa.cubin.patch import patch_entry

    check_outputs(output=str(output), json=json_file)
    original = read_cubin(file)
    patched = patch_entry(original, fibers)
    if differences := compare(original, parse_cubin(patched.data, str(output))):
        raise InternalError(f"the patch of {file} is not the same program: {differences[0]}")
    with written_whole(output) as written:
        written.write(patched.data)
    data = {"file": str(file), "output": str(output), "fibers": patched.fibers}
    emit(data, json_file, lambda out: out.print(f"{_kernels(len(patched.fibers))} patched: {output}"))
