"""Read the text of a Liberty file (`.lib`) as nested groups of statements.

What a statement means is in `heddle.cost.cells`. The grammar is that of the Liberty user guide: `name : value;`,
`name (values);` and `name (values) { statements }`. Some libraries leave out the semicolon at the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from heddle.errors import UserError

_COMMENT = re.compile(r"/\*.*?\*/|\\\r?\n", re.DOTALL)
_STATEMENT = re.compile(
    r"\s*(?:(?P<end>\})|(?P<name>[\w.\[\]]+)\s*(?::\s*(?P<value>\"[^\"]*\"|[^;\n{}]*);?"
    r"|\((?P<given>(?:\"[^\"]*\"|[^()\"])*)\)\s*(?P<open>\{)?;?)|;)"
)
_ARGUMENT = re.compile(r"\"([^\"]*)\"|([^\s,\"]+)")


@dataclass(slots=True)
class Group:
    """A group: its kind (`cell`, `pin`, ...), what stands in its brackets, its values and the groups inside."""

    kind: str
    names: list[str]
    values: dict[str, list[str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Group]:
        """Return the groups of a kind directly inside."""
        return (group for group in self.groups if group.kind == kind)

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a name."""
        return self.values[name][0] if self.values.get(name) else default

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a value as a number."""
        return float(self.values[name][0]) if name in self.values else default


def parse(text: str, name: str) -> Group:
    """Return the `library` group of a Liberty file. Raises UserError where it is none, with the line."""
    text = _COMMENT.sub(" ", text)
    top = Group("file", [name])
    stack, place = [top], 0
    while found := _STATEMENT.match(text, place):
        place = found.end()
        if found["end"]:
            if len(stack) == 1:
                break
            stack.pop()
        elif found["value"] is not None:
            stack[-1].values[found["name"]] = [found["value"].strip().strip('"')]
        elif found["name"]:
            given = [quoted or plain for quoted, plain in _ARGUMENT.findall(found["given"])]
            if found["open"]:
                stack[-1].groups.append(Group(found["name"], given))
                stack.append(stack[-1].groups[-1])
            else:
                stack[-1].values[found["name"]] = given
    libraries = list(top.of("library"))
    if text[place:].strip() or len(stack) > 1 or len(libraries) != 1:
        line = text.count("\n", 0, place) + 1
        raise UserError(f"{name} is no Liberty file: it cannot be read from line {line} on (comments not counted)")
    return libraries[0]
