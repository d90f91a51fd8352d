"""What all commands share: options, output as text or JSON, progress on a terminal, `--set name=value`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160  # columns of a table when standard output is no terminal and COLUMNS is not set

JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - is standard output.")
]
Gpu = Annotated[str, typer.Option("--gpu", metavar="G", help="A machine name (`heddle machines`) or a TOML file.")]
Mode = Annotated[str, typer.Option("--mode", metavar="M", help="Execution model: simt.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A kernel parameter; repeat for more.")
]


def console() -> Console:
    """Return the console for results (standard output)."""
    from rich.console import Console

    out = Console(highlight=False, markup=False)
    return (
        out
        if out.is_terminal or "COLUMNS" in out._environ
        else Console(highlight=False, markup=False, width=PIPE_WIDTH)
    )


def emit(data: Mapping[str, Any], json_file: str | None, show: Callable[[Console], None]) -> None:
    """Write `data` as JSON where `--json` says; show it as text unless the JSON goes to standard output."""
    if json_file is not None:
        from heddle.study.store import write_whole

        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        if json_file == "-":
            sys.stdout.write(text)
            return
        writable(json_file)
        write_whole(Path(json_file), text)
    show(console())


def writable(file: str) -> Path:
    """Check before long work that a result file can be written. Raises UserError."""
    path = Path(file)
    if path.is_dir():
        raise UserError(f"cannot write {file!r}: it is a folder")
    if not path.absolute().parent.is_dir():
        raise UserError(f"cannot write {file!r}: the folder {str(path.absolute().parent)!r} does not exist")
    try:
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            return path
    except OSError as error:
        raise UserError(f"cannot write {file!r}: {error.strerror}") from error


def check_outputs(*files: str | None) -> None:
    """Check all files that a command will write, before it works."""
    for file in files:
        if file is not None and file != "-":
            writable(file)


def assignments(texts: Iterable[str] | None) -> dict[str, str]:
    """Parse `--set name=value` options. Raises UserError on a missing sign, an empty side or a name given twice."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            raise UserError(f"--set {text!r} is not of the form name=value", hint="for example --set m=4096")
        if name in values:
            raise UserError(f"--set gives {name!r} twice: {values[name]} and {value}")
        values[name] = value
    return values


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show progress on standard error if it is a terminal; the function takes (done, total, what)."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=f"{title} {what}")
