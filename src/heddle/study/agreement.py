"""How well simulated times agree with measured ones: errors, and their summary over groups of cases.

Sign: error = simulated / measured - 1 in time, so positive means that the simulation is too slow, whatever the unit of
the measurement. Where a case has an interval, the error is to its nearest end, and 0 inside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from heddle.study.case_file import Case

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One simulated case; `row` is the result JSON of the run."""

    case: Case
    simulated_us: float
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Relative error in time, to the nearest end of the measured interval."""
        low, high = self.case.interval_us
        if low <= self.simulated_us <= high:
            return 0.0
        return self.simulated_us / (low if self.simulated_us < low else high) - 1.0

    def as_row(self) -> dict[str, Any]:
        """Return the case's line of the validation JSON."""
        case = self.case
        return {
            "case_id": case.case_id,
            "gpu": case.gpu,
            "kernel": case.kernel,
            "family": case.family,
            "measured": case.measured,
            "simulated": case.in_unit(self.simulated_us),
            "unit": case.unit,
            "error": self.error,
            "clock_mhz": self.row.get("clock_mhz"),
            "tensor_utilization": self.row.get("tensor_utilization"),
            "params": self.row.get("params", {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Agreement over a group of cases: errors are shares; `pearson` correlates times, None below three cases."""

    cases: int
    mean_abs_error: float
    max_abs_error: float
    bias: float
    pearson: float | None

    def as_row(self) -> dict[str, Any]:
        """Return the plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def summarize(outcomes: Sequence[Outcome]) -> Summary:
    """Summarize a group of at least one case."""
    errors = np.array([outcome.error for outcome in outcomes])
    return Summary(
        cases=len(outcomes),
        mean_abs_error=float(np.abs(errors).mean()),
        max_abs_error=float(np.abs(errors).max()),
        bias=float(errors.mean()),
        pearson=_pearson(outcomes),
    )


def _pearson(outcomes: Sequence[Outcome]) -> float | None:
    measured = np.array([outcome.case.microseconds(outcome.case.measured) for outcome in outcomes])
    simulated = np.array([outcome.simulated_us for outcome in outcomes])
    if len(outcomes) < 3 or measured.std() == 0 or simulated.std() == 0:
        return None
    return float(np.corrcoef(measured, simulated)[0, 1])


def grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], Key]) -> dict[Key, list[Outcome]]:
    """Collect outcomes by a key, in order of first appearance."""
    groups: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return groups


def worst(outcomes: Iterable[Outcome], count: int = 5) -> list[Outcome]:
    """Return the cases with the largest errors, largest first."""
    return sorted(outcomes, key=lambda outcome: (-abs(outcome.error), outcome.case.case_id))[:count]
