"""Find functions by what they call, and read them as syntax trees with their parameter types."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from heddle.errors import InternalError

ARRAYS = ("State", "Program", "Buffer", "Array")  # names of the array type in annotations, which are text


@dataclass(frozen=True, slots=True)
class Source:
    """One function: its name in the module, its tree, the names that it can see, and its types."""

    symbol: str
    tree: ast.FunctionDef
    names: dict[str, Any]
    parameters: tuple[tuple[str, bool], ...]  # name, whether it is an array
    results: int  # integers returned: 0, 1 or more (a tuple)
    file: str

    def error(self, node: ast.AST, message: str) -> InternalError:
        """Return the error for a construct that the compiler does not know."""
        return InternalError(f"{self.file}:{getattr(node, 'lineno', 1)}: {message}")


def symbol_of(function: FunctionType) -> str:
    """Return the name of a function in the compiled module."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def _results(annotation: ast.expr | None) -> int:
    """Return how many integers a return annotation stands for."""
    if annotation is None or (isinstance(annotation, ast.Constant) and annotation.value is None):
        return 0
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return len(annotation.slice.elts)
    return 1


def parameters_of(function: FunctionType) -> tuple[tuple[str, bool], ...]:
    """Return the parameters of a function of the core: name, whether it is an array."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return tuple((name, function.__annotations__.get(name) in ARRAYS) for name in names)


@cache
def _functions(file: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a source file, nested ones too, by name and first line."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        raise InternalError(f"{file} is no Python source file: {error}") from error
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {(node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])): node for node in found}


def _tree(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a function. Raises InternalError if its source cannot be found."""
    code = function.__code__
    tree = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if tree is None:
        raise InternalError(f"{code.co_filename}:{code.co_firstlineno}: no source of {code.co_name}")
    return tree


@cache
def read(function: FunctionType) -> Source:
    """Read a function of the core: annotations say which parameters are arrays, and how many integers it returns."""
    tree = _tree(function)
    return Source(
        symbol=symbol_of(function),
        tree=tree,
        names=function.__globals__,
        parameters=parameters_of(function),
        results=_results(tree.returns),
        file=function.__code__.co_filename,
    )


def read_integers(function: FunctionType) -> Source:
    """Read a function of integers that returns one integer, whatever its annotations say."""
    tree = _tree(function)
    return Source(
        symbol=symbol_of(function),
        tree=tree,
        names=function.__globals__,
        parameters=tuple((argument.arg, False) for argument in tree.args.args),
        results=1,
        file=function.__code__.co_filename,
    )
