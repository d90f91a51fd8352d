"""The result store: what has been simulated once costs nothing the second time, and a killed run resumes.

Content-addressed: the key is a hash of everything that decides the result (machine, kernel or program, parameters,
options, and the source of the rooms that compute it), so nothing is ever invalidated, only never asked for again. One
JSON file a result, written whole.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heddle.errors import UserError
from heddle.files import write_whole

ROOMS = ("ir", "lang", "passes", "machine", "sim", "kernels", "metrics")
"""Rooms whose source decides a simulation. `study` only asks, `cli` and `trace` only show, `isa` only writes words."""
SEARCH_ROOMS = (*ROOMS, "study")
"""Rooms whose source decides an answer that was searched for: which tile, at which clock."""

Row = dict[str, Any]


def cache_folder() -> Path:
    """Return the folder of the store: $HEDDLE_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("HEDDLE_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "heddle"


@functools.cache
def source_version(rooms: tuple[str, ...] = ROOMS) -> str:
    """Return a hash of the source of rooms."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in [*sorted(path for room in rooms for path in (root / room).rglob("*.py")), root / "pipeline.py"]:
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def key_of(description: Mapping[str, Any], rooms: tuple[str, ...] = ROOMS) -> str:
    """Hash a description of plain values, with the source version added. The order of its keys does not matter."""
    text = json.dumps({**description, "source": source_version(rooms)}, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Turn machine parts (dataclasses, mappings, sets) into JSON values for the key."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "provenance"}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a result key cannot hold {type(value).__name__}")


def load(key: str) -> Row | None:
    """Return a stored row, or None. A damaged file counts as absent."""
    try:
        row = json.loads(_path(key).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) else None


def save(key: str, row: Row) -> None:
    """Store a row. A store that cannot be written (a read-only home) is no error: the result is simply not kept."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(row))
    except (OSError, UserError):
        return


def why_not_writable() -> str:
    """Return why nothing can be stored, an empty string if the store works."""
    folder = cache_folder() / "results"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"cannot write the folder {str(cache_folder())!r}: {error.strerror}"


def remembered(description: Mapping[str, Any], compute: Callable[[], Row], rooms: tuple[str, ...] = ROOMS) -> Row:
    """Return the row of a description from the store, or compute and store it; `rooms`: whose source decides it."""
    key = key_of(description, rooms)
    row = load(key)
    if row is None:
        row = compute()
        save(key, row)
    return row


def _path(key: str) -> Path:
    return cache_folder() / "results" / key[:2] / f"{key[2:]}.json"
