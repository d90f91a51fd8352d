"""Netlists that were mapped before, kept in the user's cache folder: mapping takes minutes, looking it up does not."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from heddle.files import write_whole


def folder() -> Path:
    """Return where they are: $HEDDLE_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("HEDDLE_CACHE"):
        return Path(chosen) / "rtl"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "heddle" / "rtl"


def key(texts: Iterable[str | bytes]) -> str:
    """Return a name that changes with everything a result follows from."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def kept(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what is kept under a name; else make it and keep it, where the folder can be written."""
    path = folder() / f"{name}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found
    except (OSError, ValueError):
        made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return made
    write_whole(path, json.dumps(made))
    return made
