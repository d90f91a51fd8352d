"""Tile choice as a library does it: simulate the candidates and take the fastest.

All candidates run at one clock, so that the choice is about cycles. Where a kernel offers many, a quick bound orders
them and those far behind are not simulated. Every simulation goes through the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from heddle.errors import UserError
from heddle.machine.spec import Machine
from heddle.study.rank import least_cycles

Config = TypeVar("Config")
SIMULATED = 6  # candidates that are simulated at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen configuration; cycles by label of what was simulated to choose it, and what would not compile, why.

    `from_slices`: the cycles are estimates from slices (`heddle.study.slices`). `origin`: where the configuration comes
    from, for people. `machine`: the one with the features of the chosen form, None where no form was chosen; `forms`:
    what was compared to choose it (`heddle.study.forms`).
    """

    config: Any
    cycles: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    from_slices: bool = False
    origin: str = ""
    machine: Machine | None = None
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def shortlist(
    kernel: str, machine: Machine, params: Mapping[str, Any], candidates: Sequence[Config], mode: str = "simt"
) -> list[Config]:
    """Return the `SIMULATED` candidates with the lowest bounds, best first. Raises UserError if none can be built."""
    if len(candidates) <= SIMULATED:
        return list(candidates)
    from heddle import pipeline

    bounds: list[tuple[float, int]] = []
    problem: UserError | None = None
    for index, config in enumerate(candidates):
        try:
            program = pipeline.tile_program(kernel, machine, params, config, mode)
        except UserError as error:  # this tile does not fit this problem; another may
            problem = error
            continue
        bounds.append((least_cycles(program, machine), index))
    if not bounds and problem is not None:
        raise problem
    return [candidates[index] for _, index in sorted(bounds)[:SIMULATED]]


def choose(candidates: Sequence[Config], cycles_of: Callable[[Config], int]) -> Choice:
    """Simulate candidates and return the fastest; the first of equals. Raises UserError if none can be compiled."""
    if len(candidates) == 1:
        return Choice(config=candidates[0])
    found: dict[int, int] = {}
    refused: dict[str, str] = {}
    problem = UserError("no configuration of this kernel fits the machine")
    for index, config in enumerate(candidates):
        try:
            found[index] = cycles_of(config)
        except UserError as error:
            problem = error
            refused[_label(config)] = error.message
    if not found:
        raise problem
    best = min(found, key=lambda index: (found[index], index))
    cycles = {_label(candidates[index]): count for index, count in found.items()}
    return Choice(config=candidates[best], cycles=cycles, refused=refused)


def _label(config: Any) -> str:
    return str(config.label()) if hasattr(config, "label") else str(config)
