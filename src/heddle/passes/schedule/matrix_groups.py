"""Which registers a wait for wgmma gives back, and which ones WARPGROUP.ARRIVE hands over.

From its issue to the wait for its group a wgmma owns its accumulators and its operands in registers. The wait reads
and writes no register, so that only a walk along all paths tells which instructions have to stay behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heddle.ir.opcodes import OPCODES, Unit
from heddle.passes.draft import PSEUDO, Draft
from heddle.passes.schedule.regions import is_boundary

Elements = frozenset[tuple[int, int]]  # (value id, register of the value)
NOTHING: Elements = frozenset()
OLDEST = 8  # groups that are told apart; older ones count as one


class Flight(NamedTuple):
    """Registers of wgmma that may be under way: of the group not yet committed, and of groups, the youngest first."""

    open: Elements = NOTHING
    groups: tuple[Elements, ...] = ()

    def joined(self, other: Flight) -> Flight:
        """What may be under way if either is."""
        longer, shorter = sorted((self.groups, other.groups), key=len, reverse=True)
        shorter += (NOTHING,) * (len(longer) - len(shorter))
        groups = tuple(a | b for a, b in zip(longer, shorter, strict=True))
        return Flight(self.open | other.open, groups)

    def after(self, draft: Draft, unit: Unit | None) -> Flight:
        """What is under way behind an instruction."""
        if unit is Unit.WGMMA:
            return Flight(self.open | _registers(draft), self.groups)
        if unit is Unit.WGMMA_COMMIT:
            groups = (self.open, *self.groups)
            return Flight(NOTHING, (*groups[: OLDEST - 1], NOTHING.union(*groups[OLDEST - 1 :])))
        if unit is Unit.WGMMA_WAIT:
            return Flight(self.open, self.groups[: draft.row.pending])
        return self


def settled_by(code: Sequence[Draft]) -> Mapping[int, Elements]:
    """By index of each WARPGROUP.ARRIVE and WARPGROUP.DEPBAR: registers that nothing may touch on its other side."""
    units = [None if d.op in PSEUDO else OPCODES[d.op].unit for d in code]
    if Unit.WGMMA not in units:
        return {}
    settled: dict[int, Elements] = {i: _handed_over(code, i) for i, u in enumerate(units) if u is Unit.WGMMA_ARRIVE}
    labels = {draft.label: index for index, draft in enumerate(code) if draft.label}
    arriving: dict[int, Flight] = {}
    work = [(0, Flight())]
    while work:
        index, state = work.pop()
        while index < len(code):
            draft, unit = code[index], units[index]
            if draft.label:
                joined = state.joined(arriving[index]) if index in arriving else state
                if arriving.get(index) == joined:
                    break
                arriving[index] = state = joined
            if unit is Unit.WGMMA_WAIT:
                settled[index] = settled.get(index, NOTHING).union(*state.groups[draft.row.pending :])
            state = state.after(draft, unit)
            if draft.target:
                work.append((labels[draft.target], state))
            if unit is Unit.EXIT:
                break
            index += 1
    return settled


def _registers(draft: Draft) -> Elements:
    return frozenset(
        e for operand in draft.dst + draft.src if operand.value.file == "vector" for e in operand.elements()
    )


def _handed_over(code: Sequence[Draft], arrive: int) -> Elements:
    """Registers of the wgmma that follow an ARRIVE up to their commit."""
    owned = NOTHING
    for draft in code[arrive + 1 :]:
        if is_boundary(draft) or OPCODES[draft.op].unit is Unit.WGMMA_COMMIT:
            break
        if OPCODES[draft.op].unit is Unit.WGMMA:
            owned |= _registers(draft)
    return owned
