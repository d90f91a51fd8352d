"""Where each key of a TOML file stands: tomllib keeps no positions, and errors should point at the line.

Reads line by line: table headers, keys, and the keys of inline tables. That covers machine files; a key inside a
multi-line string is skipped, and a key that is not found has no position, which only makes a message less exact.
"""

from __future__ import annotations

import re
from pathlib import Path

from heddle.errors import SourceLocation

KeyPath = tuple[str, ...]

_PART = r"\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+"
_KEY = rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*"
_HEADER = re.compile(rf"^\s*\[\s*({_KEY})\s*\]\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(rf"^\s*({_KEY})\s*=\s*")
_INNER = re.compile(rf"[{{,]\s*({_KEY})\s*=\s*")


def _parts(key: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))


def locate(text: str, file: str) -> dict[KeyPath, SourceLocation]:
    """Return the place of the value of every key path, and with "" added to the path, of the key itself.

    A table's own path gives its header line.
    """
    places: dict[KeyPath, SourceLocation] = {}
    table: KeyPath = ()
    in_string = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if in_string:
            in_string = "" if in_string in line else in_string
            continue
        if header := _HEADER.match(line):
            table = _parts(header[1])
            places.setdefault(table, SourceLocation(file, number, 1))
        elif found := _ASSIGNMENT.match(line):
            path = table + _parts(found[1])
            places[path] = SourceLocation(file, number, found.end() + 1)
            places[(*path, "")] = SourceLocation(file, number, found.start(1) + 1)
            if line[found.end() :].startswith("{"):
                for inner in _INNER.finditer(line, found.end()):
                    places[path + _parts(inner[1])] = SourceLocation(file, number, inner.end() + 1)
            in_string = next((q for q in ('"""', "'''") if line.count(q) == 1), "")
    return places


def syntax_error_place(message: str, path: Path) -> SourceLocation:
    """Return the place that a tomllib error message names ("... (at line 3, column 5)"), else the first line."""
    found = re.search(r"line (\d+), column (\d+)", message)
    if found:
        return SourceLocation(str(path), int(found[1]), int(found[2]))
    return SourceLocation(str(path), max(1, len(path.read_text(encoding="utf-8").splitlines())), 1)
