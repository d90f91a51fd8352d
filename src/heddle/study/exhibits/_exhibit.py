"""What an exhibit is: a table or figure of the paper, answered by this project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.study.pool import Progress

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A table or figure of the paper.

    `where`: its place there. `answer(jobs, progress)`: plain data; simulations go through the store, so a run that was
    stopped goes on; `jobs` processes, all cores for None.
    """

    name: str
    title: str
    where: str
    answer: Callable[[int | None, Progress | None], Answer]
