"""Compare two results (A against B) of the result JSON, number by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SKIPPED = ("provenance", "simulation", "params", "by_line", "by_instruction")


@dataclass(frozen=True, slots=True)
class Change:
    """One metric in both results; `ratio` is b / a, None if a is zero or either is absent."""

    id: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        """b over a."""
        return self.b / self.a if self.a and self.b is not None else None

    @property
    def difference(self) -> float | None:
        """b less a."""
        return self.b - self.a if self.a is not None and self.b is not None else None


def flatten(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (path, number) of all numbers of a result, paths joined by dots, truth values left out."""
    for key, value in document.items():
        path = f"{prefix}{key}"
        if path in _SKIPPED:
            continue
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield path, float(value)


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Return all metrics of two results in the order of A, then those that only B has; equal ones included."""
    left, right = dict(flatten(a)), dict(flatten(b))
    return [Change(path, left.get(path), right.get(path)) for path in dict.fromkeys([*left, *right])]
