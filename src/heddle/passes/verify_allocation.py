"""Check of an allocation, written without the allocator's data structures.

It follows every register backwards from each read to the writes that reach it and demands that no other value is
written to the same register on the way; that groups are aligned and inside the budget.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from heddle.errors import InternalError
from heddle.passes.draft import Draft, DraftProgram, Operand, RoleDraft

Place = tuple[str, int]  # register file and index


@dataclass(frozen=True, slots=True)
class VerifyAllocation:
    """Raise InternalError if two values that are needed at the same time share a register."""

    def run(self, program: DraftProgram, machine: object = None) -> DraftProgram:
        """Check all roles and return the program unchanged."""
        for role in program.roles:
            _check_groups(role)
            _check_paths(role)
        return program


def _check_groups(role: RoleDraft) -> None:
    for draft in role.code:
        for operand in draft.dst + draft.src:
            base = role.registers[operand.value.id]
            end = base + operand.value.count
            if base % operand.value.align or (operand.value.file == "vector" and end > role.body.registers):
                raise InternalError(f"{role.body.name}: {operand.value.name} has registers {base} to {end - 1}")


def _places(role: RoleDraft, operands: tuple[Operand, ...]) -> dict[Place, tuple[int, int]]:
    """Register -> the (value, element) that an instruction expects or leaves there."""
    result: dict[Place, tuple[int, int]] = {}
    for operand in operands:
        base = role.registers[operand.value.id]
        for value, index in operand.elements():
            result[operand.value.file, base + index] = (value, index)
    return result


def _check_paths(role: RoleDraft) -> None:
    """Forward data flow of register contents: each register holds the set of elements that may be there."""
    labels = {draft.label: index for index, draft in enumerate(role.code) if draft.label}
    arriving: dict[int, dict[Place, frozenset[tuple[int, int]]]] = {}
    work: list[tuple[int, dict[Place, frozenset[tuple[int, int]]]]] = [(0, {})]
    while work:
        index, state = work.pop()
        while index < len(role.code):
            draft = role.code[index]
            if draft.label or index == 0:
                merged = _merge(arriving.get(index), state)
                if merged is None:
                    break
                arriving[index], state = merged, dict(merged)
            _step(role, draft, state)
            if draft.target:
                work.append((labels[draft.target], dict(state)))
            if draft.op == "EXIT":
                break
            index += 1


def _merge(
    old: dict[Place, frozenset[tuple[int, int]]] | None, new: dict[Place, frozenset[tuple[int, int]]]
) -> dict[Place, frozenset[tuple[int, int]]] | None:
    """The union, or None if `new` adds nothing."""
    if old is None:
        return dict(new)
    merged: dict[Place, frozenset[tuple[int, int]]] = defaultdict(frozenset, old)
    for place, content in new.items():
        merged[place] = merged[place] | content
    return None if dict(merged) == old else dict(merged)


def _step(role: RoleDraft, draft: Draft, state: dict[Place, frozenset[tuple[int, int]]]) -> None:
    for place, element in _places(role, draft.reads()).items():
        content = state.get(place, frozenset())
        if content - {element}:
            others = sorted(content - {element})
            raise InternalError(
                f"{role.body.name}: {draft.op} reads element {element} in {place}, which may hold {others[:3]}"
            )
    for place, element in _places(role, draft.dst).items():
        state[place] = frozenset({element})
