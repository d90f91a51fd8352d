"""Read the fields of a dataclass from text, guided by their types.

`head(field=value, flag, ...)` inside a line, `head field=value flag ...` for a whole line. Types that occur: int,
float, bool, str, Literal, optional ones, tuples, mappings of numbers and strings, and nested dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from heddle.ir.text_cursor import LineCursor, Token
from heddle.ir.warp import Count

_NON_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """Return the resolved type of every field of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def read_record(
    cursor: LineCursor,
    kind: Any,
    skip: set[str] | frozenset[str] = frozenset(),
    *,
    parenthesised: bool,
    extra: Mapping[str, Callable[[LineCursor], Any]] | None = None,
) -> dict[str, Any]:
    """Read a record whose first field stands in front, and return its fields; required ones must be there."""
    start = cursor.peek
    head = dataclasses.fields(kind)[0].name
    fields = {head: read_value(cursor, field_types(kind)[head])}
    if not parenthesised or cursor.accept("("):
        fields |= read_fields(cursor, kind, {head, *skip}, parenthesised=parenthesised, extra=extra)
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in fields and field.name not in set(skip) - set(extra or {}):
            cursor.fail(f"{kind.__name__.lower()} {fields[head]!r} has no {field.name!r}", start)
    return fields


def read_fields(
    cursor: LineCursor,
    kind: Any,
    skip: set[str] | frozenset[str],
    *,
    parenthesised: bool,
    extra: Mapping[str, Callable[[LineCursor], Any]] | None = None,
) -> dict[str, Any]:
    """Read `name=value` or `flag` until the end (`)` or no more names), without the fields in `skip`."""
    readers = {name: _reader(hint) for name, hint in field_types(kind).items() if name not in skip} | dict(extra or {})
    fields: dict[str, Any] = {}
    while cursor.peek.kind == "name":
        token = cursor.take()
        if token.text not in readers:
            cursor.fail_unknown("field", token, readers)
        if token.text in fields:
            cursor.fail(f"field {token} is given twice", token)
        if field_types(kind)[token.text] is bool and cursor.peek.text != "=":
            fields[token.text] = True
        else:
            cursor.expect("=")
            fields[token.text] = readers[token.text](cursor)
        if parenthesised and not cursor.accept(","):
            break
    if parenthesised:
        cursor.expect(")")
    return fields


def _reader(hint: Any) -> Callable[[LineCursor], Any]:
    return lambda cursor: read_value(cursor, hint)


def read_value(cursor: LineCursor, hint: Any) -> Any:
    """Read a value of type `hint`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        given = [argument for argument in arguments if argument is not type(None)]
        return read_value(cursor, given[0]) if len(given) == 1 else _read_literal(cursor)
    if origin is Literal:
        return _read_choice(cursor, arguments)
    if origin is tuple:
        return _read_tuple(cursor, arguments[0])
    if hint is Count:
        return _read_count(cursor)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint(**read_record(cursor, hint, parenthesised=True))
    if origin is not None:
        return _read_mapping(cursor)
    return _SCALARS[hint](cursor)


def read_integer(cursor: LineCursor, what: str = "a number") -> int:
    """Read an integer."""
    return cursor.integer(what)


def read_name(cursor: LineCursor, what: str = "a name") -> str:
    """Read a bare or quoted name."""
    return cursor.name(what)


def _read_bool(cursor: LineCursor) -> bool:
    return bool(_read_choice(cursor, ("true", "false")) == "true")


_SCALARS: dict[Any, Callable[[LineCursor], Any]] = {int: read_integer, str: read_name, bool: _read_bool}


def _read_choice(cursor: LineCursor, allowed: tuple[Any, ...]) -> Any:
    token = cursor.peek
    text = cursor.name(f"one of {', '.join(map(str, allowed))}")
    if text not in allowed:
        cursor.fail_unknown("value", token, allowed)
    return text


def _read_tuple(cursor: LineCursor, element: Any) -> tuple[Any, ...]:
    values: list[Any] = []
    cursor.expect("[")
    while not cursor.accept("]"):
        if values:
            cursor.expect(",")
        values.append(read_value(cursor, element))
    return tuple(values)


def _read_mapping(cursor: LineCursor) -> dict[str, Any]:
    values: dict[str, Any] = {}
    cursor.expect("{")
    while not cursor.accept("}"):
        if values:
            cursor.expect(",")
        name = cursor.name("a name")
        cursor.expect("=")
        values[name] = _read_literal(cursor)
    return values


def _read_literal(cursor: LineCursor) -> int | float | str:
    """Read a parameter: an integer, a float (with a point or exponent, inf, nan) or a quoted string."""
    token = cursor.take()
    if token.kind == "string":
        return cursor.unquote(token)
    if token.text in _NON_FINITE:
        return _NON_FINITE[token.text]
    if token.kind != "number":
        cursor.fail(f"expected a number or a quoted string, got {token}", token)
    return float(token.text) if _is_float(token) else int(token.text)


def _is_float(token: Token) -> bool:
    return any(mark in token.text for mark in ".eE")


def _read_count(cursor: LineCursor) -> Count:
    """Read 7, an item attribute, an attribute with an offset, or all fields in parentheses."""
    if cursor.peek.kind == "number":
        return Count(cursor.integer("a count"))
    if cursor.accept("("):
        return Count(**read_fields(cursor, Count, frozenset(), parenthesised=True))
    attribute = cursor.name("a count or an item attribute")
    signed = cursor.peek.kind == "number" and cursor.peek.text[0] in "+-"
    return Count(attribute=attribute, offset=cursor.integer("an offset") if signed else 0)
