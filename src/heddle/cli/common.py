"""What all commands share: options, output as text or JSON, progress on a terminal, `--set name=value`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.errors import UserError
from heddle.files import in_place, write_whole

if TYPE_CHECKING:
    from rich.console import Console

STANDARD_OUTPUT = ("-", "/dev/stdout")
PIPE_WIDTH = 160  # columns of a table when standard output is no terminal and COLUMNS is not set

JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - is standard output.")
]
MarkdownFile = Annotated[
    str | None, typer.Option("--markdown", metavar="FILE", help="Put the tables into a page, between its marks.")
]
Gpu = Annotated[str, typer.Option("--gpu", metavar="G", help="A machine name (`heddle machines`) or a TOML file.")]
Mode = Annotated[str, typer.Option("--mode", metavar="M", help="Execution model: simt, cuda-native or fiber.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE ...", help="Kernel parameters, one or more.")
]


def console() -> Console:
    """Return the console for results (standard output)."""
    from rich.console import Console

    class Out(Console):
        """Leaves it to `heddle.cli.app` what happens when the reader of a pipe has left."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    out = Out(highlight=False, markup=False)
    known_width = out.is_terminal or "COLUMNS" in out._environ
    return out if known_width else Out(highlight=False, markup=False, width=PIPE_WIDTH)


def emit(data: Mapping[str, Any], json_file: str | None, show: Callable[[Console], None]) -> None:
    """Write `data` as JSON where `--json` says; show it as text unless the JSON goes to standard output."""
    if json_file is not None:
        write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", json_file)
        if json_file in STANDARD_OUTPUT:
            return
    show(console())


def write_text(text: str, file: str) -> None:
    """Write a result to a file, whole or not at all, or to standard output. Raises UserError."""
    if file in STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_whole(Path(file), text)


def page_of(file: str | None, commands: Iterable[str]) -> str:
    """Return the text of the page of --markdown, empty for a new one. Raises UserError where it lacks the marks."""
    from heddle.report.markdown import into_page

    if file is None or file in STANDARD_OUTPUT or not Path(file).is_file():
        return ""
    text = Path(file).read_text("utf-8")
    for name in commands:
        into_page(text, name, "")
    return text


def check_outputs(**files: str | None) -> None:
    """Check all files that a command will write, by option, before it works. Raises UserError."""
    taken: dict[str, str] = {}
    for name, file in files.items():
        if file is None:
            continue
        option = f"--{name}"
        if not file.strip():
            raise UserError(f"{option} needs the name of a file", hint="- is standard output")
        if file in STANDARD_OUTPUT:
            place = STANDARD_OUTPUT[0]
        else:
            _check_writable(Path(file))
            place = str(Path(file).resolve())
        if place in taken:
            raise UserError(f"{taken[place]} and {option} would both write {file!r}")
        taken[place] = option


def _check_writable(path: Path) -> None:
    folder = path.absolute().parent
    if path.is_dir():
        raise UserError(f"cannot write {str(path)!r}: it is a folder")
    if not folder.is_dir():
        raise UserError(f"cannot write {str(path)!r}: the folder {str(folder)!r} does not exist")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"cannot write {str(path)!r}: it is not writable")
    if in_place(path):
        return
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            return
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror}") from error


def check_store() -> None:
    """Say in one line if results cannot be kept; work goes on without."""
    from heddle.study.store import why_not_writable

    if why := why_not_writable():
        print(f"heddle: warning: results are not kept: {why}", file=sys.stderr)


def spread_settings(arguments: Iterable[str]) -> list[str]:
    """Return command-line arguments with one `--set` (`--only`) for each setting (name) that follows the first."""
    spread: list[str] = []
    for argument in arguments:
        option = spread[-2] if len(spread) >= 2 and not argument.startswith("-") else ""
        follows = option == "--only" or (option == "--set" and "=" in argument)
        spread += [option, argument] if follows else [argument]
    return spread


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


def names_in(option: str, text: str | None) -> tuple[str, ...]:
    """Split the value of an option, `a,b`, into names. Raises UserError if there are none or one is given twice."""
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"{option} {text!r} has an empty name", hint=f"for example {option} a,b")
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{option} names {name!r} twice")
    return tuple(names)


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
