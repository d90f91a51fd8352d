"""Things that take effect at the start of a later cycle: arrivals, landed bytes, launches."""

from __future__ import annotations

from collections.abc import Callable

from heddle.errors import InternalError

Action = Callable[[int], None]


class Events:
    """Actions by cycle; those of one cycle run in the order in which they were caused."""

    def __init__(self) -> None:
        self.now = -1
        self._actions: dict[int, list[Action]] = {}

    def at(self, cycle: int, action: Action) -> None:
        """Run `action(cycle)` at the start of a later cycle."""
        if cycle <= self.now:
            raise InternalError(
                f"an effect for cycle {cycle} was caused in cycle {self.now}; it must lie in the future"
            )
        self._actions.setdefault(cycle, []).append(action)

    def run(self, cycle: int) -> None:
        """Run what is due."""
        self.now = cycle
        for action in self._actions.pop(cycle, []):
            action(cycle)

    def __len__(self) -> int:
        return len(self._actions)
