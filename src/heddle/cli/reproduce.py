"""`heddle reproduce`: the tables and figures of the FIBER paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import (
    STANDARD_OUTPUT,
    JsonFile,
    MarkdownFile,
    check_outputs,
    check_store,
    emit,
    names_in,
    page_of,
    progress,
    write_text,
)
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
    markdown: MarkdownFile = None,
) -> None:
    """Make tables and figures of the paper with this simulator, the paper's figures beside; resumable."""
    from rich.console import Group

    from heddle.report.exhibits.views import check_drawable, draw_all, report
    from heddle.study.exhibits.registry import EXHIBITS, find_exhibit, reproduce

    check_outputs(json=json_file, markdown=markdown)
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
    page_of(markdown, [_mark(exhibit.name) for exhibit in chosen])  # refused at once
    check_store()
    with progress("reproducing") as done:
        answers = reproduce([exhibit.name for exhibit in chosen], jobs=jobs, progress=done)
    pictures = draw_all(answers, folder) if folder is not None else []
    if markdown is not None:
        _write_page(answers, markdown)
    shown = Group() if markdown in STANDARD_OUTPUT else report(answers)
    emit({"exhibits": answers}, json_file, lambda console: console.print(shown))
    for picture in pictures:
        typer.echo(f"picture: {picture}", err=json_file in STANDARD_OUTPUT)
    if failed := sum("failed" in answer for answer in answers):
        typer.echo(f"heddle: {failed} of {len(answers)} exhibits failed", err=True)
        raise typer.Exit(1)


def _mark(name: str) -> str:
    """What stands in the marks of a page that has an exhibit."""
    return f"heddle reproduce --only {name}"


def _write_page(answers: list[dict[str, Any]], file: str) -> None:
    """Put exhibits into a page or, one below the other, into a new one; those that failed are left as they were.

    The page is read now, as it may have changed while they were made.
    """
    from heddle.report.exhibits.views import VIEWS
    from heddle.report.markdown import into_page, markdown

    texts = {
        answer["name"]: markdown(VIEWS[answer["name"]].show(answer)) for answer in answers if "failed" not in answer
    }
    page = page_of(file, map(_mark, texts))
    if page.strip():
        for name, text in texts.items():
            page = into_page(page, _mark(name), text)
    else:
        page = "\n".join(into_page("", _mark(name), text) for name, text in texts.items())
    write_text(page, file)


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
