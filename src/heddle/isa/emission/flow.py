"""Branches: displacements in words, where parted fibers meet, and which role's base holds at an instruction."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.errors import UserError
from heddle.ir.verify_flow import reachable
from heddle.ir.warp import Instruction, WarpProgram
from heddle.isa.emission.form import Field, Form

WORD_BYTES = 16
UNIT_BYTES = 4
"""A displacement counts units of 4 bytes from the next instruction on."""
OPENS, CLOSES = "BSSY", "BSYNC"


def put_target(word: int, field: Field, pc: int, target: int) -> int:
    """Return a branch at `pc` to `target`."""
    return field.put_raw(word, (target - pc - 1) * WORD_BYTES // UNIT_BYTES)


def get_target(word: int, field: Field, pc: int) -> int:
    """Return the target of a branch at `pc`. Raises UserError for one between instructions."""
    count, rest = divmod(field.signed(word) * UNIT_BYTES, WORD_BYTES)
    if rest:
        raise UserError(f"instruction {pc} branches to the middle of an instruction")
    return pc + 1 + count


def meetings(rows: Sequence[Instruction]) -> dict[int, int]:
    """Return where the fibers that each BSSY lets part meet again: the target of the BSYNCs after it.

    In words BSSY names that place and BSYNC none. Raises UserError where the BSYNCs of a BSSY disagree.
    """
    found: dict[int, int] = {}
    opened: int | None = None
    for pc, row in enumerate(rows):
        if row.op == OPENS:
            opened = pc
        elif row.op == CLOSES and (
            opened is None or row.target is None or found.setdefault(opened, row.target) != row.target
        ):
            raise UserError(f"the BSYNC at {pc} does not lead where the BSSY before it says")
    return found


def meeting_targets(words: Sequence[int], forms: Sequence[Form]) -> dict[int, int]:
    """Return the target of each BSYNC: what the BSSY before it says."""
    found: dict[int, int] = {}
    meeting: int | None = None
    for pc, (word, form) in enumerate(zip(words, forms, strict=True)):
        if form.op == OPENS:
            meeting = get_target(word, form.fields["meeting"], pc)
        elif form.op == CLOSES:
            if meeting is None:
                raise UserError(f"the BSYNC at {pc} has no BSSY before it")
            found[pc] = meeting
    return found


def bases(program: WarpProgram) -> list[int | None]:
    """Return for each row the base of the roles that run it, None where they have different ones."""
    found: list[int | None] = [0] * len(program.instructions)
    seen: set[int] = set()
    for role in program.roles:
        for pc in reachable(program, role):
            if pc not in seen:
                found[pc] = role.base
            elif found[pc] != role.base:
                found[pc] = None
            seen.add(pc)
    return found
