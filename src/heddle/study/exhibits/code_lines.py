"""Lines of code of a Python file, by the rule of the exhibit on them."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
            tokenize.ENDMARKER)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lines:
    """`logical`: statements, however many lines each takes. `code`: lines that hold more than comment or docstring."""

    logical: int
    code: int

    def __add__(self, other: Lines) -> Lines:
        """Add up files."""
        return Lines(self.logical + other.logical, self.code + other.code)


def count(source: str) -> Lines:
    """Count the lines of a module; comments, docstrings and blank lines are not counted."""
    docstrings = _docstring_lines(source)
    logical, code = 0, set[int]()
    pending = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            logical, pending = logical + pending, False
        if token.type in _NO_CODE or token.start[0] in docstrings:
            continue
        pending = True
        code.update(range(token.start[0], token.end[0] + 1))
    return Lines(logical, len(code))


def _docstring_lines(source: str) -> set[int]:
    """Return the lines of docstrings, and of the strings below an assignment that document it."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found
