"""Errors for people: what went wrong, where, what was allowed and what to do.

Three roots. `UserError`: a kernel, a configuration or an argument is wrong (exit code 2). `UnsupportedError`:
the request is sensible but not modelled (exit code 2). `InternalError`: our bug (exit code 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a user's file; `column` is 1-based, 0 when unknown."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def excerpt(self) -> str:
        """Return the source line with a caret under the column, or an empty string if unreadable."""
        try:
            text = Path(self.file).read_text(encoding="utf-8").splitlines()[self.line - 1]
        except (OSError, IndexError, UnicodeDecodeError):
            return ""
        text = "".join(letter if letter.isprintable() else " " for letter in text)
        caret = " " * (self.column - 1) + "^" if self.column else ""
        return "\n".join(part for part in (text, caret) if part)


class HeddleError(Exception):
    """Base of all errors that Heddle raises on purpose."""

    exit_code = 2

    def __init__(self, message: str, *, where: SourceLocation | None = None, hint: str = "") -> None:
        self.message, self.where, self.hint = message, where, hint
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        if self.where and (excerpt := self.where.excerpt()):
            lines += ["  " + line for line in excerpt.splitlines()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class UserError(HeddleError):
    """The user's kernel, machine file, cases file or argument is wrong."""


class UnsupportedError(HeddleError):
    """Sensible, but not modelled; the message says what to do instead."""


class InternalError(HeddleError):
    """An invariant of Heddle itself is broken: please report it with the command that led here."""

    exit_code = 1


def unknown_name(kind: str, given: str, allowed: Iterable[str], where: SourceLocation | None = None) -> UserError:
    """Build the error for an unknown name, with the nearest match and the legal ones."""
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {kind} {given!r}; allowed: {', '.join(names)}", where=where, hint=hint)
