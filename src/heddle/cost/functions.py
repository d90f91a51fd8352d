"""Boolean functions as Liberty writes them, as Python expressions on words of bits, a simulated run a bit.

Operators: `!` or `'` (not), `*`, `&` or a space (and), `^` (exclusive or), `+` or `|` (or), 0 and 1.
"""

from __future__ import annotations

import re

from heddle.errors import UserError

_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|[01()!'*&+|^])")
ALL = "M"
"""The name of the word with every bit set, in an expression."""


class _Reader:
    """Recursive descent: or < exclusive or < and < not."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, _TOKEN.findall(text), 0
        self.names: set[str] = set()

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def any(self) -> str:
        return self._chain(self.exclusive, "+|", "|")

    def exclusive(self) -> str:
        return self._chain(self.all, "^", "^")

    def _chain(self, part, signs: str, written: str) -> str:  # type: ignore[no-untyped-def]
        terms = [part()]
        while self.next and self.next in signs:
            self.take()
            terms.append(part())
        return terms[0] if len(terms) == 1 else f"({f' {written} '.join(terms)})"

    def all(self) -> str:
        terms = [self.one()]
        while self.next and self.next not in ")+|^":
            if self.next in "*&":
                self.take()
            terms.append(self.one())
        return terms[0] if len(terms) == 1 else f"({' & '.join(terms)})"

    def one(self) -> str:
        token = self.take()
        if token == "!":
            return f"({ALL} ^ {self.one()})"
        if token == "(":
            inner = self.any()
            if self.take() != ")":
                raise UserError(f"the function {self.text!r} of a Liberty file lacks a bracket")
        elif token in ("0", "1"):
            inner = "0" if token == "0" else ALL
        elif token and (token[0].isalpha() or token[0] == "_"):
            self.names.add(token)
            inner = f"{{{token}}}"
        else:
            raise UserError(f"the function {self.text!r} of a Liberty file cannot be read at {token or 'its end'!r}")
        while self.next == "'":
            self.take()
            inner = f"({ALL} ^ {inner})"
        return inner


def expression(function: str) -> tuple[str, frozenset[str]]:
    """Return a function as a Python expression with `{pin}` for a pin's word, and its pins. Raises UserError."""
    reader = _Reader(function)
    text = reader.any()
    if reader.at != len(reader.tokens) or not reader.tokens:
        raise UserError(f"the function {function!r} of a Liberty file cannot be read to its end")
    return text, frozenset(reader.names)
