"""What every kernel of the registry offers: named parameters, configurations to choose from, a program, a reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError, unknown_name
from heddle.ir.tile import TileProgram
from heddle.machine.spec import Machine

Config = TypeVar("Config")


FORMS: dict[type, str] = {int: "whole number", str: "text", tuple: "whole numbers joined by x"}
"""How a value of each type is written."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter; a text parameter has `choices`, a number is at least `least`.

    `small`: the value that `heddle check` takes where none is given; without it a large default is cut down.
    """

    name: str
    type: type[int] | type[str]
    default: int | str
    meaning: str
    choices: tuple[str, ...] = ()
    least: int = 1
    small: int | None = None

    @property
    def allowed(self) -> str:
        """Which values it may take."""
        return ", ".join(self.choices) if self.choices else f"{self.least} or more"

    def parse(self, value: Any) -> int | str:
        """Return the value in the parameter's type; raises UserError if it is out of range."""
        if self.type is str:
            if value not in self.choices:
                raise unknown_name(f"value of {self.name!r}:", str(value), self.choices)
            return str(value)
        number = _integer(self.name, value)
        if number < self.least:
            raise UserError(f"parameter {self.name!r} ({self.meaning}) must be at least {self.least}, got {number}")
        return number


@dataclass(frozen=True, slots=True)
class TileParameter:
    """A field of a kernel's configuration, which may be given like a parameter; without it, it is chosen."""

    name: str
    type: type[int] | type[str] | type[tuple[Any, ...]]
    meaning: str
    allowed: str


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"parameter {name!r} must be a whole number, got {value!r}") from None


class Kernel(ABC, Generic[Config]):
    """A kernel of the registry.

    A configuration (tile, stages, ...) is the kernel's own frozen dataclass with a method `label()`.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    tile: tuple[TileParameter, ...]
    architectures: tuple[str, ...]
    modes: tuple[str, ...]

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in params:
            if name not in known:
                raise unknown_name(f"parameter of {self.name}", name, known)
        return {name: parameter.parse(params.get(name, parameter.default)) for name, parameter in known.items()}

    @abstractmethod
    def candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[Config]:
        """Return the configurations worth trying on a machine."""

    def library_candidates(self, library: str, machine: Machine, params: Mapping[str, Any]) -> list[Config]:
        """Return those that a library is known to have. Raises UserError where the library's are not listed."""
        raise UserError(f"no configurations of {library} are listed for {self.name}")

    @abstractmethod
    def build(self, machine: Machine, params: Mapping[str, Any], config: Config | None = None) -> TileProgram:
        """Return the tile program for a machine and a configuration."""

    @abstractmethod
    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return inputs and expected outputs by tensor name."""

    @abstractmethod
    def flops(self, params: Mapping[str, Any]) -> int:
        """Return the useful floating-point operations."""
