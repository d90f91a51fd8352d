"""Split a line of program text into tokens and point at the place where reading fails."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from heddle.errors import SourceLocation, UserError

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//.*)|(?P<string>"(?:\\.|[^"\\])*")|(?P<control>\[B[-\d]{6}:R[-\d]:W[-\d]:S\d+\])
    |(?P<register>(?:R\d+|RZ)(?:@(?:\d|own|tm))?(?:(?=:\d):\d+)?(?:\.reuse)?(?![\w.]))
    |(?P<number>[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|inf)(?![\w.]))
    |(?P<name>[^\W\d][\w.]*)|(?P<arrow>->)|(?P<mark>[=,:(){}\[\]]))""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a line; `column` is 1-based. The last token of a line has kind "end" and no text."""

    kind: str
    text: str
    column: int

    def __str__(self) -> str:
        return repr(self.text) if self.text else "the end of the line"


class LineCursor:
    """Reads the tokens of one line in order; errors name file, line and column and show the line with a caret."""

    def __init__(self, file: str, line: int, text: str) -> None:
        self.file, self.line, self.text = file, line, text
        self._tokens = self._split()
        self._next = 0

    def _split(self) -> list[Token]:
        tokens, position, end = [], 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                column = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                self.fail(f"cannot read {self.text[column : column + 12]!r}", Token("", "", column + 1))
            kind = str(match.lastgroup)
            if kind != "comment":
                tokens.append(Token(kind, match.group(kind), match.start(kind) + 1))
            position = match.end()
        return [*tokens, Token("end", "", end + 1)]

    def fail(self, message: str, token: Token | None = None, hint: str = "") -> NoReturn:
        """Raise UserError at `token` (default: the next one)."""
        column = (token or self.peek).column
        where = SourceLocation(self.file, self.line, column)
        excerpt = f"\n  {self.text.rstrip()}\n  {' ' * (column - 1)}^"
        error = UserError(f"{self.file}:{self.line}:{column}: {message}{excerpt}", hint=hint)
        error.where = where
        raise error

    def fail_unknown(self, kind: str, token: Token, allowed: Iterable[str]) -> NoReturn:
        """Raise UserError for a name that is not one of `allowed`, with the nearest one as a hint."""
        names = sorted(allowed)
        near = difflib.get_close_matches(token.text, names, n=1)
        listed = f"; allowed: {', '.join(names)}" if len(names) <= 40 else ""
        self.fail(f"unknown {kind} {token}{listed}", token, hint=f"did you mean {near[0]!r}?" if near else "")

    @property
    def peek(self) -> Token:
        """The next token, not yet taken."""
        return self._tokens[self._next]

    @property
    def after_peek(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is the mark or word `text`."""
        found = self.peek.text == text and self.peek.kind != "string"
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        """Take the mark or word `text`."""
        if not self.accept(text):
            self.fail(f"expected {text!r}, got {self.peek}")

    def expect_end(self) -> None:
        """Check that the line ends here."""
        if self.peek.kind != "end":
            self.fail(f"expected the end of the line, got {self.peek}")

    def name(self, what: str) -> str:
        """Take a bare or quoted name."""
        token = self.take()
        if token.kind == "string":
            return self.unquote(token)
        if token.kind != "name":
            self.fail(f"expected {what}, got {token}", token)
        return token.text

    def integer(self, what: str) -> int:
        """Take an integer."""
        token = self.take()
        if token.kind != "number" or not re.fullmatch(r"[-+]?\d+", token.text):
            self.fail(f"expected {what}, an integer, got {token}", token)
        return int(token.text)

    def unquote(self, token: Token) -> str:
        """Return the text inside a quoted token."""
        try:
            return str(json.loads(token.text))
        except json.JSONDecodeError:
            self.fail(f"bad escape in {token.text}", token)
