"""From today's kernel to all of FIBER, feature by feature: whole results of the baseline and of each step.

`heddle compare --ablate` shows the steps of one kernel beside its control; this is what a study over many workloads
asks: nothing else is run. All runs have the clock of the baseline and go through the store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.machine.spec import Machine
from heddle.study.compare import answers_of, baseline_of, native_part
from heddle.study.features import STEPS, Step
from heddle.study.requests import request

Row = dict[str, Any]
NO_GAIN = 0.02
"""A gain below this share of the baseline has no parts that mean anything."""
PARTS = {"DP": "+DP", "FS": "+DP +FS", "RS": "+DP +FS +RS"}
"""The paper's features, each with the machine that has it first."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kernel on a machine with the features of a step: its result, or why there is none."""

    step: Step
    row: Row | None
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Ablation:
    """Today's result and the forms of all steps."""

    baseline: Row
    forms: tuple[Form, ...]


def ablation(kernel: str, machine: Machine, params: Mapping[str, Any]) -> Ablation:
    """Run today's kernel and every step. Raises UserError if today's cannot run."""
    today = request(kernel, machine, simulation="representative", texts=params)
    baseline, base = baseline_of(today, None)
    at = dataclasses.replace(base, clock_mhz=baseline["clock_mhz"], clock_source="that of the baseline")
    parts = [native_part(step.name, at, step.machine(machine), params) for step in STEPS]
    results, absent = answers_of(parts, 1, None)
    forms = tuple(Form(step, results.get(step.name), absent.get(step.name, "")) for step in STEPS)
    return Ablation(baseline, forms)


def speedups(found: Ablation) -> dict[str, float]:
    """Return the speed-up over the baseline of each step that has a result, by the step's name."""
    return {form.step.name: found.baseline["cycles"] / form.row["cycles"] for form in found.forms if form.row}


def in_part(found: Ablation, form: Form) -> bool:
    """Whether launches of a sequence run as today in a step that have a FIBER-native kernel with all of FIBER."""
    whole = found.forms[-1].row
    return bool(form.row and whole and set(form.row.get("notes", ())) - set(whole.get("notes", ())))


def parts_of_gain(speedup: Mapping[str, float]) -> dict[str, float | None]:
    """Return which share of the gain of all of FIBER each feature adds, None where that cannot be said.

    That is so without any gain, and where a step or the one before it has no kernel. Shares add up to one; one is
    negative where a step is slower than the one before it.
    """
    whole = speedup.get(PARTS["RS"])
    found: dict[str, float | None] = {}
    before: float | None = 1.0
    for feature, step in PARTS.items():
        now = speedup.get(step)
        known = whole is not None and now is not None and before is not None and whole - 1 >= NO_GAIN
        found[feature] = (now - before) / (whole - 1) if known else None  # type: ignore[operator]
        before = now
    return found
