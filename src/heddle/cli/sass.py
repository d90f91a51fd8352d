"""`heddle sass`: cubins shown, checked and patched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, emit, progress
from heddle.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.isa.claims import Claims

app = typer.Typer(
    help="Machine code of real GPUs (cubins): show, check, and make it run on FIBER hardware.",
    epilog="Example: heddle sass show kernel.cubin",
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[Path, typer.Argument(help="A cubin.")]
MOST_SHOWN = 20


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
    emit(data, json_file, lambda out: _show_kernels(rows, out))


def _show_kernels(rows: list[dict[str, Any]], out: Console) -> None:
    for row in rows:
        needs = ", ".join(f"{name} {value}" for name, value in row["resources"].items() if value is not None)
        out.print(f"{row['kernel']}: {needs}", soft_wrap=True)
        for one in row["instructions"]:
            line = f"  // {one['line']}" if one["line"] else ""
            live = "?" if one["live"] is None else one["live"]
            out.print(f"  {one['offset']:05x}  {one['control']}  {live:>3}  {one['text']}{line}", soft_wrap=True)


@app.command(epilog="Example: heddle sass check patched.cubin --original kernel.cubin")
def check(
    file: Annotated[Path | None, typer.Argument(help="A cubin.")] = None,
    original: Annotated[
        Path | None, typer.Option("--original", metavar="FILE", help="The cubin that FILE was made from.")
    ] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Compare by NVIDIA's disassembler too (extra `sass`).")
    ] = False,
    summary: Annotated[
        Path | None, typer.Option("--summary", metavar="DIR", help="Report on all cubins below a folder instead.")
    ] = None,
    above: Annotated[int, typer.Option("--above", metavar="N", min=0, help="Live registers to count above.")] = 128,
    json_file: JsonFile = None,
) -> None:
    """Check a cubin: the 13 bits, live registers; with --original, that it is the same program but for FIBER code."""
    check_outputs(json=json_file)
    if (file is None) == (summary is None):
        raise UserError("give either a cubin or --summary DIR", hint="heddle sass check --summary DIR")
    if summary is not None:
        _check_folder(summary, json_file)
        return
    assert file is not None
    if original is not None or judge:
        _check_patch(file, original, judge, json_file)
    else:
        _check_file(file, above, json_file)


def _check_folder(folder: Path, json_file: str | None) -> None:
    from heddle.isa.claims import claims_row
    from heddle.isa.cubin.report import claims_of, cubins_below

    found = claims_of(cubins_below(folder))
    emit({"summary": [claims_row(one) for one in found.values()]}, json_file, lambda out: _show_claims(found, out))


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

        _show_claims(claims, out)
        table = Table("kernel", "instructions", "most live registers", f"share above {above}")
        for one in pressures:
            share = "-" if one.share is None else f"{one.share:.1%}"
            most = "opcodes not known" if one.most is None else str(one.most)
            table.add_row(one.kernel, str(one.instructions), most, share)
        out.print(table)

    rows = [pressure_row(one, above) for one in pressures]
    emit(
        {"file": str(file), "claims": [claims_row(one) for one in claims.values()], "kernels": rows},
        json_file,
        show_all,
    )


def _show_claims(found: dict[str, Claims], out: Console) -> None:
    from rich.table import Table

    from heddle.isa.claims import VERDICTS

    for claims in found.values():
        taken = f"{claims.paper_bits_taken / max(claims.instructions, 1):.1%}"
        out.print(
            f"{claims.architecture}: {claims.instructions} instructions; bits 99:87 of the paper are taken in {taken}"
        )
        for verdict in VERDICTS:
            count = claims.verdicts[verdict]
            out.print(f"  {verdict}: {count} ({count / max(claims.instructions, 1):.1%})")
        for limit, count in claims.limits.most_common():
            out.print(f"  limit: {limit}: {count}")
        for (name, bit), count in claims.set_bits.most_common(MOST_SHOWN):
            out.print(f"  bit {bit} is set in {count} {name}")
        if claims.unknown:
            codes = ", ".join(f"{code:#x}: {count}" for code, count in claims.unknown.most_common(MOST_SHOWN))
            out.print(f"  opcodes not known: {codes}")
        table = Table("instruction", "number", "source slots", "bits of use", "limit")
        for name, count in claims.names.most_common(MOST_SHOWN):
            one = claims.by_name[name]
            table.add_row(name, str(count), one.slots or "-", _ranges(one.bits), one.limit)
        out.print(table)


def _ranges(bits: tuple[int, ...]) -> str:
    """Return bits as ranges, such as 94:92 104."""
    parts: list[list[int]] = []
    for bit in bits:
        if parts and bit == parts[-1][-1] + 1:
            parts[-1].append(bit)
        else:
            parts.append([bit])
    return " ".join(f"{part[-1]}:{part[0]}" if len(part) > 1 else str(part[0]) for part in parts) or "-"


def _kernels(count: int) -> str:
    return "1 kernel" if count == 1 else f"{count} kernels"


def _check_patch(file: Path, original: Path | None, judge: bool, json_file: str | None) -> None:
    from heddle.isa.cubin.compare import compare
    from heddle.isa.cubin.cubin import read_cubin
    from heddle.isa.cubin.judge import judge as by_nvidia

    if original is None:
        raise UserError("--judge compares with the cubin that FILE was made from", hint="--original FILE")
    before, after = read_cubin(original), read_cubin(file)
    differences, judged = compare(before, after), None
    if judge:
        verdict = by_nvidia(before, after)
        differences += verdict.differences
        judged = {"instructions": verdict.instructions, "references": verdict.references}
    data = {"file": str(file), "original": str(original), "differences": differences, "judged_by_nvidia": judged}

    def show_all(out: Console) -> None:
        for one in differences[:MOST_SHOWN]:
            out.print(one, soft_wrap=True)
        if len(differences) > MOST_SHOWN:
            out.print(f"and {len(differences) - MOST_SHOWN} more")
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
