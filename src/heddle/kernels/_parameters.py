"""Parameters of a kernel and fields of its configuration: name, type, meaning, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.errors import UserError, unknown_name

FORMS: dict[type, str] = {int: "whole number", str: "text", tuple: "whole numbers joined by x"}
"""How a value of each type is written."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter; a text parameter has `choices`, a number has them or is at least `least`, `most` at most.

    `small`: the value that `heddle check` takes where none is given; without it a large default is cut down.
    `today`: of the kernels of the modes simt and cuda-native alone; a FIBER-native one takes the default.
    """

    name: str
    type: type[int] | type[str]
    default: int | str
    meaning: str
    choices: tuple[str, ...] | tuple[int, ...] = ()
    least: int = 1
    small: int | str | None = None
    most: int | None = None
    today: bool = False

    @property
    def allowed(self) -> str:
        """Which values it may take."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"

    def parse(self, value: Any) -> int | str:
        """Return the value in the parameter's type; raises UserError if it is out of range."""
        if self.type is str:
            if value not in self.choices:
                raise unknown_name(f"value of {self.name!r}:", str(value), [str(choice) for choice in self.choices])
            return str(value)
        number = _integer(self.name, value)
        if self.choices and number not in self.choices:
            raise UserError(f"parameter {self.name!r} ({self.meaning}) must be one of {self.allowed}, got {number}")
        if not self.choices and number < self.least:
            raise UserError(f"parameter {self.name!r} ({self.meaning}) must be at least {self.least}, got {number}")
        if self.most is not None and number > self.most:
            raise UserError(f"parameter {self.name!r} ({self.meaning}) must be {self.most} at most, got {number}")
        return number


@dataclass(frozen=True, slots=True)
class TileParameter:
    """A field of a kernel's configuration, which may be given like a parameter; without it, it is chosen."""

    name: str
    type: type[int] | type[str] | type[tuple[Any, ...]]
    meaning: str
    allowed: str


def checked(owner: str, parameters: Sequence[Parameter], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values.

    `owner`: the kernel whose parameters they are, for the message.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for name in params:
        if name not in known:
            raise unknown_name(f"parameter of {owner}", name, known)
    return {name: parameter.parse(params.get(name, parameter.default)) for name, parameter in known.items()}


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"parameter {name!r} must be a whole number, got {value!r}") from None
