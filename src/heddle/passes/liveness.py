"""Pass 3: which registers are live after each instruction, by backward data flow over the role's control flow.

Sets are integers with one bit for each register of each value, so that a part of a tile can die before the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from heddle.passes.draft import Draft, File, Operand, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """`after[i]`, `before[i]`: registers live on that side of instruction i; `masks`: bits of each value by id;
    `files`: bits of each file."""

    after: tuple[int, ...]
    before: tuple[int, ...]
    at_entry: int
    values: tuple[Value, ...]
    masks: Mapping[int, int]
    files: Mapping[str, int]

    def live_values(self, mask: int) -> list[Value]:
        """The values that have a register in a set."""
        return [value for value in self.values if mask & self.masks[value.id]]

    def each_after(self) -> Iterator[int]:
        """After each instruction: the values that have a live register (bit i: i-th value)."""
        owner = [index for index, value in enumerate(self.values) for _ in range(value.count)]
        counts = [0] * len(self.values)
        alive = before = 0
        for mask in self.after:
            changed = mask ^ before
            while changed:
                low = changed & -changed
                index = owner[low.bit_length() - 1]
                counts[index] += 1 if mask & low else -1
                alive = alive | 1 << index if counts[index] else alive & ~(1 << index)
                changed ^= low
            before = mask
            yield alive

    def peaks(self) -> dict[File, int]:
        """Most registers that values which are live together take up in each file, counted by whole values."""
        result: dict[File, int] = {"vector": 0, "uniform": 0, "predicate": 0}
        used, before = dict(result), 0
        for alive in self.each_after():
            changed = alive ^ before
            while changed:
                low = changed & -changed
                value = self.values[low.bit_length() - 1]
                if value.file in used:
                    used[value.file] += value.count if alive & low else -value.count
                changed ^= low
            before = alive
            result = {file: max(most, used[file]) for file, most in result.items()}
        return result

    def pressure(self, mask: int, file: str = "vector") -> int:
        """Registers of a file in a set."""
        return (mask & self.files.get(file, 0)).bit_count()


def liveness(code: Sequence[Draft]) -> Liveness:
    """Solve liveness of one role's code."""
    values = _values(code)
    starts, masks, bit = {}, {}, 0
    for value in values:
        starts[value.id] = bit
        masks[value.id] = ((1 << value.count) - 1) << bit
        bit += value.count
    reads = [_mask(draft.reads() + draft.after + draft.after_read, starts) for draft in code]
    writes = [_mask(draft.dst, starts) & ~(_mask(draft.dst[:1], starts) if draft.accumulates else 0) for draft in code]
    labels = {draft.label: index for index, draft in enumerate(code) if draft.label}
    after = [0] * len(code)
    before = [0] * (len(code) + 1)
    changed = True
    while changed:
        changed = False
        for index in range(len(code) - 1, -1, -1):
            draft = code[index]
            out = 0 if draft.op == "EXIT" else before[index + 1]
            if draft.target:
                out |= before[labels[draft.target]]
            into = reads[index] | (out & ~writes[index])
            if out != after[index] or into != before[index]:
                after[index], before[index], changed = out, into, True
    files: dict[str, int] = {}
    for value in values:
        files[value.file] = files.get(value.file, 0) | masks[value.id]
    return Liveness(
        after=tuple(after), before=tuple(before[:-1]), at_entry=before[0], values=values, masks=masks, files=files
    )


def _values(code: Sequence[Draft]) -> tuple[Value, ...]:
    seen: dict[int, Value] = {}
    for draft in code:
        for operand in draft.dst + draft.src + draft.after + draft.after_read:
            seen.setdefault(operand.value.id, operand.value)
    return tuple(seen.values())


def _mask(operands: Iterable[Operand], starts: Mapping[int, int]) -> int:
    mask = 0
    for operand in operands:
        mask |= ((1 << operand.count) - 1) << (starts[operand.value.id] + operand.offset)
    return mask
