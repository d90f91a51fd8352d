"""All exhibits by name, and what `heddle reproduce` runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.errors import HeddleError, unknown_name
from heddle.study.exhibits._exhibit import Exhibit
from heddle.study.exhibits.fig1 import FIG1
from heddle.study.exhibits.fig2b import FIG2B
from heddle.study.exhibits.scaling import SCALING
from heddle.study.exhibits.table1 import TABLE1
from heddle.study.exhibits.utilization import UTILIZATION
from heddle.study.pool import Progress

EXHIBITS: dict[str, Exhibit] = {exhibit.name: exhibit for exhibit in (FIG1, FIG2B, TABLE1, SCALING, UTILIZATION)}
"""In the order of the paper."""


def find_exhibit(name: str) -> Exhibit:
    """Return an exhibit by name; raises UserError with the nearest match."""
    if name not in EXHIBITS:
        raise unknown_name("exhibit", name, EXHIBITS)
    return EXHIBITS[name]


def reproduce(
    names: Sequence[str] = (), *, jobs: int | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return the exhibits of these names, all without any: `name`, `title`, `where` and what each answers.

    One that fails has `failed`, the reason, in place of its answer, and the others go on. Raises UserError for an
    unknown name before anything runs.
    """
    chosen = [find_exhibit(name) for name in names or EXHIBITS]
    return [_answered(exhibit, jobs, progress) for exhibit in chosen]


def _answered(exhibit: Exhibit, jobs: int | None, progress: Progress | None) -> dict[str, Any]:
    named = {"name": exhibit.name, "title": exhibit.title, "where": exhibit.where}
    try:
        return {**named, **exhibit.answer(jobs, progress)}
    except HeddleError as error:
        return {**named, "failed": error.message.partition("\n")[0]}
