"""Write a file whole or not at all: it appears under its name when everything has been written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from heddle.errors import UserError

_STREAMS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Folders whose names stand for something that is open already."""


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file for bytes, which takes the place of `path` when the block ends; an error leaves the old one.

    What is no ordinary file (a device, a pipe) is written in place, since a rename would replace it. Raises UserError.
    """
    try:
        if in_place(path):
            with path.open("wb") as file:
                yield file
        else:
            with _replaced(path.resolve()) as file:  # a link stays a link
                yield file
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all. Raises UserError."""
    with written_whole(path) as file:
        file.write(text.encode())


def in_place(path: Path) -> bool:
    """Return whether a path names something other than an ordinary file."""
    return (path.exists() and not path.is_file()) or path.absolute().parent in _STREAMS


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".heddle-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # a temporary file is private, a result is an ordinary file
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
