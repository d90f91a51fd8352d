"""Which form of a FIBER-native kernel runs: a machine can run the programs of all machines with fewer features, too.

Each kernel has forms for the steps of the ablation (`kernels._native`). The one that uses all of a machine's features
is not always the fastest, so the answer of mode fiber is the best of all that the machine can run. A form is built for
the machine with the features that it uses; what it does not use does not change its cycles (tests/unit/test_forms.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heddle.errors import HeddleError, UnsupportedError, UserError
from heddle.kernels._native import NativeKernel
from heddle.kernels.registry import composite_of, find_kernel
from heddle.machine.spec import Machine
from heddle.study import mappings
from heddle.study.choose import Choice
from heddle.study.features import STEPS, Step
from heddle.study.requests import Request

NEAR = 1.10
"""Forms estimated within this factor of the best are simulated: slices are off by a few percent (tile_choice.md)."""
SCOPES = ("subpartition", "sm")
"""How far registers are shared, the least first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ways:
    """How forms are judged. All take a question whose machine has the features of the form.

    `tile` chooses its tile; `costly`, `estimate` and `simulate` take a question with a tile: whether simulating it
    takes long, its cycles by a slice, and its cycles in the simulation of the answer.
    """

    tile: Callable[[Request], Choice]
    costly: Callable[[Request], bool]
    estimate: Callable[[Request], int]
    simulate: Callable[[Request], int]


def name_of(machine: Machine) -> str:
    """Return the features of a machine as the steps of the ablation name them."""
    for step in STEPS:
        if _features(machine) == _features(_reduced(machine, step)):
            return step.name
    switched = ("dynamic_parallelism", "DP"), ("fine_scheduling", "FS"), ("register_sharing", "RS")
    return " ".join(f"+{short}" for feature, short in switched if getattr(machine, feature))


def lesser(asked: Request) -> list[Request]:
    """Return the question on machines with fewer features that run another form, those with most features first.

    Empty where the question says what runs (by a mode, a tile or fields of one, or as a sequence of launches), and
    where the shipped mappings say that the kernel's own form is ahead.
    """
    chosen = asked.mode != "fiber" or asked.form == "own" or asked.pins or asked.config is not None
    if chosen or composite_of(asked.kernel, asked.params) is not None:
        return []
    found = mappings.winner(asked)
    if found is not None and found.form == "own":
        return []
    return _others(asked)


def _others(asked: Request) -> list[Request]:
    seen: list[NativeKernel[Any, Any] | None]
    seen = [_native(asked.kernel, asked.machine), None]
    found = []
    for step in reversed(STEPS):
        machine = _reduced(asked.machine, step)
        native = _native(asked.kernel, machine) if _within(machine, asked.machine) else None
        if all(native is not other for other in seen):
            seen.append(native)
            found.append(dataclasses.replace(asked, machine=machine, form="own"))
    return found


def _native(kernel: str, machine: Machine) -> NativeKernel[Any, Any] | None:
    """Return the form that uses the features of a machine, None if none does with them."""
    try:
        return find_kernel(kernel).native_on(machine)
    except UserError:
        return None


def as_in(asked: Request, row: Mapping[str, Any]) -> Request:
    """Return the question about the form that a result is of, so that nothing is chosen again."""
    form = row["choice"].get("form")
    own = dataclasses.replace(asked, form="own")
    return next((other for other in lesser(asked) if name_of(other.machine) == form), own)


def fastest(asked: Request, others: Sequence[Request], ways: Ways) -> Choice:
    """Return the tile of the fastest form, with its machine. Raises UserError, as the first form does, if none runs."""
    choices: dict[str, tuple[Request, Choice]] = {}
    problems: list[HeddleError] = []
    for form in (dataclasses.replace(asked, form="own"), *others):
        try:
            choice = ways.tile(form)
        except (UserError, UnsupportedError) as error:
            problems.append(error)
            continue
        choices[name_of(form.machine)] = dataclasses.replace(form, config=choice.config), choice
    cycles = _judged({name: form for name, (form, _) in choices.items()}, ways, problems)
    if not any(row["simulated"] for row in cycles.values()):
        raise problems[0]
    best = min((name for name in cycles if cycles[name]["simulated"]), key=lambda name: int(cycles[name]["cycles"]))
    form, choice = choices[best]
    return dataclasses.replace(choice, machine=form.machine, forms=cycles)


def _judged(forms: Mapping[str, Request], ways: Ways, problems: list[HeddleError]) -> dict[str, dict[str, Any]]:
    """Return cycles by form, and whether they are those of a simulation; forms that cannot run are left out.

    Where one takes long to simulate, all are estimated, and those that are near the best or better than all that ran
    are simulated.
    """
    estimates: dict[str, int] = {}
    costly = len(forms) > 1 and any(ways.costly(form) for form in forms.values())
    for name, form in forms.items():
        try:
            estimates[name] = ways.estimate(form) if costly else 0
        except (UserError, UnsupportedError) as error:
            problems.append(error)
    rows: dict[str, dict[str, Any]] = {}
    limit: float | None = None
    for name in sorted(estimates, key=lambda name: estimates[name]):
        row = {"cycles": estimates[name], "simulated": False, "config": forms[name].config.label()}
        if limit is None or estimates[name] <= limit:
            try:
                row |= {"cycles": ways.simulate(forms[name]), "simulated": True}
                limit = NEAR * estimates[name] if limit is None else limit
            except (UserError, UnsupportedError) as error:  # the verifier, which an estimate does not ask
                problems.append(error)
                continue
        rows[name] = row
    return {name: rows[name] for name in forms if name in rows}


def _reduced(machine: Machine, step: Step) -> Machine:
    """Return a machine with the features of a step, under the name that the ablation gives it."""
    stem = machine.name
    for other in STEPS:
        stem = stem.removesuffix(f"+{other.short}")
    whole = {"fine_scheduling": True, "register_sharing": True, "sharing_scope": SCOPES[-1]}
    return machine.replace(**{**whole, **step.changes}, name=f"{stem}+{step.short}")


def _features(machine: Machine) -> tuple[bool, bool, int]:
    """Return the features that a form may do without, each the larger the more; scope is nothing without sharing."""
    scope = SCOPES.index(machine.sharing_scope) if machine.register_sharing else -1
    return machine.fine_scheduling, machine.register_sharing, scope


def _within(machine: Machine, whole: Machine) -> bool:
    """Tell whether a machine has no feature that another lacks."""
    return all(one <= other for one, other in zip(_features(machine), _features(whole), strict=True))
