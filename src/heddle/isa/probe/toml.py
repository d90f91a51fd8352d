"""Write table entries as TOML, one line a field and a group of modifier bits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+$")


def table_text(rows: Iterable[dict[str, Any]], heading: str) -> str:
    """Return the text of a table file."""
    parts = ["".join(f"# {line}\n" for line in heading.splitlines())]
    parts += [_entry(row) for row in rows]
    return "\n".join(parts)


def _entry(row: dict[str, Any]) -> str:
    lines = ["[[form]]", f"code = 0x{row['code']:x}"]
    for key, value in row.items():
        if key == "fields":
            lines += [f"fields.{_key(name)} = {_inline(data)}" for name, data in value.items()]
        elif key == "choices" and value:
            lines += ["choices = [", *(f"  {_inline(choice)}," for choice in value), "]"]
        elif key not in ("code", "choices"):
            lines.append(f"{key} = {_inline(value)}")
    return "\n".join(lines) + "\n"


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_inline(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if _BARE.match(name) else json.dumps(name)
