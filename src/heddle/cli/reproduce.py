"""`heddle reproduce`: the tables and figures of the FIBER paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.common import STANDARD_OUTPUT, JsonFile, check_outputs, check_store, emit, names_in, progress
from heddle.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.study.exhibits._exhibit import Exhibit

EXAMPLE = "heddle reproduce --only table1 scaling --out pictures"


def command(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME ...", help="These exhibits, one or more; all without.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the exhibits and exit.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Draw the figures into this folder (needs matplotlib).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, metavar="N", help="Processes; all cores without.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Make tables and figures of the paper with this simulator, the paper's figures beside; resumable."""
    from heddle.report.exhibits.views import check_drawable, draw_all, report
    from heddle.study.exhibits.registry import EXHIBITS, find_exhibit, reproduce

    check_outputs(json=json_file)
    names = list(dict.fromkeys(name for text in only or () for name in names_in("--only", text)))
    chosen = [find_exhibit(name) for name in names] or list(EXHIBITS.values())
    if listed:
        rows = [_listed(exhibit) for exhibit in chosen]
        emit({"exhibits": rows}, json_file, lambda console: _print_list(rows, console))
        return
    folder = None
    if out is not None:
        check_drawable()
        folder = _folder(out)
    check_store()
    with progress("reproducing") as shown:
        answers = reproduce([exhibit.name for exhibit in chosen], jobs=jobs, progress=shown)
    pictures = draw_all(answers, folder) if folder is not None else []
    emit({"exhibits": answers}, json_file, lambda console: console.print(report(answers)))
    for picture in pictures:
        typer.echo(f"picture: {picture}", err=json_file in STANDARD_OUTPUT)
    if failed := sum("failed" in answer for answer in answers):
        typer.echo(f"heddle: {failed} of {len(answers)} exhibits failed", err=True)
        raise typer.Exit(1)


def _listed(exhibit: Exhibit) -> dict[str, object]:
    from heddle.report.exhibits.views import VIEWS

    drawn = VIEWS[exhibit.name].draw is not None
    return {"name": exhibit.name, "title": exhibit.title, "where": exhibit.where, "picture": drawn}


def _print_list(rows: list[dict[str, object]], console: Console) -> None:
    from rich.table import Table

    table = Table("name", "exhibit", "in the paper", "picture")
    for row in rows:
        table.add_row(str(row["name"]), str(row["title"]), str(row["where"]), "yes" if row["picture"] else "")
    console.print(table)


def _folder(name: str) -> Path:
    """Make the folder for pictures. Raises UserError."""
    if not name.strip():
        raise UserError("--out needs the name of a folder")
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make the folder {name!r}: {problem.strerror or problem}") from None
    return folder
