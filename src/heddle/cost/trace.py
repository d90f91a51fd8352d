"""What a unit is given and what it has to answer, cycle by cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heddle.machine.spec import Machine


@dataclass(slots=True)
class Trace:
    """Ports of a module by name, one number a cycle. `cares` has the bits of an output that count, if not all do."""

    inputs: dict[str, list[int]] = field(default_factory=dict)
    outputs: dict[str, list[int]] = field(default_factory=dict)
    cares: dict[str, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return max(map(len, self.inputs.values()), default=0)

    def give(self, **values: int) -> None:
        """Add inputs of a cycle."""
        for name, value in values.items():
            self.inputs.setdefault(name, []).append(value)

    def expect(self, **values: int) -> None:
        """Add outputs of a cycle."""
        for name, value in values.items():
            self.outputs.setdefault(name, []).append(value)

    def care(self, **masks: int) -> None:
        """Say which bits of an output count in a cycle."""
        for name, mask in masks.items():
            self.cares.setdefault(name, []).append(mask)


@dataclass(frozen=True, slots=True)
class Unit:
    """A module and the simulator's unit of the same task.

    `play(machine, random, cycles)` lets the simulator's unit work on random input and returns what it was given and
    what it answered. `changes` are fields of the machine that keep a simulation small.
    """

    name: str  # of the module
    play: Callable[[Machine, Random, int], Trace]
    changes: dict[str, int] = field(default_factory=dict)


def pack(values: Iterable[int], width: int) -> int:
    """Join numbers of `width` bits; the first is the lowest."""
    word = 0
    for place, value in enumerate(values):
        word |= (value & (1 << width) - 1) << place * width
    return word
