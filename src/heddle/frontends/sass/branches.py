"""Branches of machine code as branches of warp programs.

Machine code computes its conditions; warp programs do not. So a branch back is a loop with a number of rounds that is
given. A conditional branch forward is taken where only that leads to a loop (after Ball and Larus, "Branch prediction
for free", PLDI 1993: code chooses to enter loops), or where the caller says so; an unconditional one is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heddle.frontends.sass.rows import control_of
from heddle.ir.warp import LOOP_LEVELS, Count, Instruction
from heddle.isa.emission.flow import get_target
from heddle.isa.emission.form import Field, code_of
from heddle.isa.words import get_bits

BRANCHES = (0x947, 0x1547, 0x1947)
"""BRA, by a uniform predicate, by divergence."""
DISPLACEMENT = {
    "sm_80": Field(((81, 34),)),
    "sm_90": Field(((81, 34), (23, 16))),
    "sm_100": Field(((81, 34), (23, 16))),
}
NEVER = "zero"
"""The item attribute that is zero: a SKIP on it is taken."""
ALWAYS = 7


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of the code: where it is and leads, in instructions; whether it has a condition."""

    at: int
    target: int
    conditional: bool


def branches(words: Sequence[int], architecture: str) -> dict[int, Branch]:
    """Return the branches to places inside of the code."""
    found = {}
    for at, word in enumerate(words):
        if code_of(word) not in BRANCHES:
            continue
        target = get_target(word, DISPLACEMENT[architecture], at)
        plain = code_of(word) == BRANCHES[0] and get_bits(word, 15, 12) == ALWAYS and get_bits(word, 90, 87) == ALWAYS
        if 0 <= target < len(words):
            found[at] = Branch(at, target, not plain)
    return found


def loop_levels(found: dict[int, Branch]) -> dict[int, int]:
    """Return the nesting level of each branch back, 0 for outermost; those that jump to themselves are none."""
    loops = [branch for branch in found.values() if branch.target < branch.at]
    return {
        inner.at: sum(outer is not inner and outer.target <= inner.target and inner.at < outer.at for outer in loops)
        for inner in loops
    }


def enters_a_loop(branch: Branch, found: Mapping[int, Branch], exits: Sequence[int]) -> bool:
    """Tell whether a branch forward leads to a loop that the code behind it leaps over."""
    leaps = [(one.at, one.target) for one in found.values() if not one.conditional and one.target > one.at]
    leaps += [(at, sys.maxsize) for at in exits]
    over = min((leap for leap in leaps if branch.at < leap[0] < branch.target), default=None)
    if over is None or over[1] <= branch.target:
        return False
    return any(loop.target < loop.at and branch.target <= loop.target < over[1] for loop in found.values())


def branch_row(
    branch: Branch, word: int, level: int | None, trips: int, places: Sequence[int], taken: bool
) -> Instruction | None:
    """Return the row of a branch; `places`: the row of each instruction. None for loops that are nested too deeply."""
    control = control_of(word)
    if branch.target == branch.at:
        return Instruction(op="EXIT", control=control)
    if branch.target > branch.at:
        if branch.conditional and not taken:
            return Instruction(op="BRA", control=control)
        return Instruction(op="SKIP", control=control, attribute=NEVER, target=places[branch.target])
    if level is None or level >= LOOP_LEVELS:
        return None
    return Instruction(op="LOOP", control=control, level=level, count=Count(trips), target=places[branch.target])
