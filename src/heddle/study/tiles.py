"""Tile parameters that a user pins: `--set tile_n=256` next to the kernel's own parameters.

A kernel's configuration is its own frozen dataclass; its fields may be given like parameters. Candidates that agree
stay; if none does, all are changed to agree, so that a tile outside the list can be tried (and be refused by the
compiler).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from heddle.errors import UserError

Config = TypeVar("Config")


def config_fields(candidates: Sequence[Any]) -> dict[str, Any]:
    """Return the names of the configuration's fields with an example value each."""
    if not candidates or not dataclasses.is_dataclass(candidates[0]):
        return {}
    return {field.name: getattr(candidates[0], field.name) for field in dataclasses.fields(candidates[0])}


def pinned(candidates: Sequence[Config], pins: Mapping[str, Any]) -> list[Config]:
    """Return the candidates that agree with the pins, or all of them changed to agree."""
    fields = config_fields(candidates)
    values = {name: _parsed(name, value, fields[name]) for name, value in pins.items()}
    agreeing = [c for c in candidates if all(getattr(c, name) == value for name, value in values.items())]
    if agreeing or not candidates:
        return agreeing
    return list(dict.fromkeys(dataclasses.replace(c, **values) for c in candidates))  # type: ignore[type-var]


def _parsed(name: str, value: Any, example: Any) -> Any:
    """Parse a value in the type of the example: a whole number, text, or numbers joined by x."""
    if not isinstance(value, str) or isinstance(example, str):
        return value
    parts = value.split("x") if isinstance(example, tuple) else [value]
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        wanted = "numbers joined by x, as in 2x4" if isinstance(example, tuple) else "a whole number"
        raise UserError(f"parameter {name!r} must be {wanted}, got {value!r}") from None
    return tuple(numbers) if isinstance(example, tuple) else numbers[0]
