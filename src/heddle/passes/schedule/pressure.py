"""Registers in use while an order is built, counted by whole values, as the allocator places them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from heddle.passes.draft import Draft, File
from heddle.passes.liveness import Liveness

FILES: tuple[File, ...] = ("vector", "uniform", "predicate")
Touch = tuple[int, File, int]  # value id, its file and size


@dataclass(slots=True)
class Pressure:
    """A value lives from before the block, or its first touch in it, to its last touch, or beyond the block."""

    touches: tuple[tuple[Touch, ...], ...]  # of each instruction
    left: Counter[int]  # instructions of the block that still have to touch each value
    live: set[int]
    kept: frozenset[int]  # live after the block
    used: Counter[File]
    reserve: Mapping[File, int]  # what an instruction of the source order may demand at any time
    peak: Counter[File] = field(default_factory=Counter)
    limits: Mapping[File, int] = field(default_factory=dict)

    @classmethod
    def of(cls, code: Sequence[Draft], live: Liveness, start: int, end: int) -> Pressure:
        """The state at the start of code[start:end]."""
        touches = tuple(_touches(draft) for draft in code[start:end])
        entering = [value for value in live.live_values(live.before[start]) if value.file in FILES]
        inside = {value.id for value in entering}
        kept = frozenset(value.id for value in live.live_values(live.after[end - 1]))
        used: Counter[File] = Counter()
        for value in entering:
            used[value.file] += value.count
        reserve: dict[File, int] = dict.fromkeys(FILES, 0)
        for number, file, count in (touch for some in touches for touch in some):
            if number not in inside and number not in kept:
                reserve[file] = max(reserve[file], count)
        left = Counter(number for some in touches for number, _, _ in some)
        return cls(touches, left, inside, kept, used, reserve)

    def within(self, limits: Mapping[File, int]) -> Pressure:
        """An independent copy with limits."""
        return replace(
            self,
            left=Counter(self.left),
            live=set(self.live),
            used=Counter(self.used),
            peak=Counter(self.used),
            limits=limits,
        )

    def exceeds(self) -> bool:
        """Whether a limit has been passed."""
        return any(self.peak[file] > self.limits[file] for file in FILES)

    def fits(self, index: int) -> bool:
        """Whether an instruction asks for nothing more, or leaves every file within its limit less the reserve."""
        more: dict[File, int] = {}
        for value, file, count in self.touches[index]:
            if value not in self.live:
                more[file] = more.get(file, 0) + count
            elif self.left[value] == 1 and value not in self.kept:
                more[file] = more.get(file, 0) - count
        for file, change in more.items():
            if change > 0 and self.used[file] + change + self.reserve[file] > self.limits[file]:
                return False
        return True

    def issue(self, index: int) -> None:
        """Take an instruction."""
        touches = self.touches[index]
        for value, file, count in touches:
            if value not in self.live:
                self.live.add(value)
                self.used[file] += count
                self.peak[file] = max(self.peak[file], self.used[file])
        for value, file, count in touches:
            self.left[value] -= 1
            if not self.left[value] and value not in self.kept:
                self.live.discard(value)
                self.used[file] -= count


def _touches(draft: Draft) -> tuple[Touch, ...]:
    values = {o.value.id: o.value for o in draft.dst + draft.src + draft.after}
    return tuple((value.id, value.file, value.count) for value in values.values() if value.file in FILES)
