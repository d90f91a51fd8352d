"""What is printed, as Markdown, and where it goes in a page: between two lines that name the command.

Pure: takes and returns text and renderables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from heddle.errors import UserError


def marks(command: str) -> tuple[str, str]:
    """Return the lines of a page between which the tables of a command stand."""
    return f"<!-- begin: {command} -->", f"<!-- end: {command} -->"


def into_page(page: str, command: str, text: str) -> str:
    """Return a page with the text between the marks; one that is empty gets it alone. Raises UserError."""
    begin, end = marks(command)
    if not page.strip():
        return f"{begin}\n{text}{end}\n"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise UserError(
            f"the file of --markdown has text, but not the lines between which the tables of {command} go",
            hint=f"write {begin} and {end} there, or name another file",
        )
    return f"{before}{begin}\n{text}{end}{after}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    cells = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in cells]


def markdown(shown: RenderableType) -> str:
    """Return tables with their titles, and texts, a paragraph each."""
    return "\n\n".join(_parts(shown)) + "\n"


def _parts(shown: RenderableType) -> Iterator[str]:
    if isinstance(shown, Group):
        for part in shown.renderables:
            yield from _parts(part)
    elif isinstance(shown, Table):
        yield f"**{shown.title}**"
        rows = zip(*([str(cell) for cell in column.cells] for column in shown.columns), strict=True)
        yield "\n".join(table([str(column.header) for column in shown.columns], list(rows)))
    elif text := str(shown):
        yield text
