"""Statements of full and empty (mode fiber) travel with the access that they are about.

A statement is bound to the last accesses before it. Accesses to pool tensors and tensor memory keep their order, so it
may stand right behind the last one that touches its registers, wherever that goes, and is no border between blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heddle.passes.draft import BUSY_BIT, Draft

Code = tuple[Draft, ...]


def lifted(code: Sequence[Draft]) -> tuple[Code, Mapping[int, Code]]:
    """Return the code without statements, and the statements by id of the instruction that they follow."""
    kept: list[Draft] = []
    marks: dict[int, Code] = {}
    for draft in code:
        partner = _partner(draft, kept) if draft.op == BUSY_BIT else None
        if partner is None:
            kept.append(draft)
        else:
            marks[id(partner)] = (*marks.get(id(partner), ()), draft)
    return tuple(kept), marks


def lowered(code: Sequence[Draft], marks: Mapping[int, Code]) -> Code:
    """Return the code with each statement behind its instruction; drafts must be those of `lifted`."""
    return tuple(d for draft in code for d in (draft, *marks.get(id(draft), ())))


def _partner(mark: Draft, before: Sequence[Draft]) -> Draft | None:
    """The last access to a statement's registers; None where a label or branch, or nothing, comes first."""
    stated = {element for operand in mark.src for element in operand.elements()}
    for draft in reversed(before):
        if draft.label or draft.target:
            return None
        if any(not stated.isdisjoint(operand.elements()) for operand in (*draft.dst, *draft.src)):
            return draft
    return None
