"""Pass 5: mark single-register sources that the next instruction reads in the same slot, for the operand cache.

Of kernels of mode fiber the private registers alone: a source in another subpartition has no reuse bit. A bind that
comes between later only makes the mark idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heddle.machine.spec import Machine
from heddle.passes.draft import EMITTED, Draft, DraftProgram, Operand, RoleDraft
from heddle.passes.timing import is_real


@dataclass(frozen=True, slots=True)
class MarkReuse:
    """Set reuse bits where the machine has a reuse cache."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Mark all roles."""
        if not machine.register_reuse_cache:
            return program
        return replace(program, roles=tuple(_role(role) for role in program.roles))


def _role(role: RoleDraft) -> RoleDraft:
    code = list(role.code)
    for index in range(len(code) - 1):
        first, second = code[index], code[index + 1]
        if is_real(first) and is_real(second) and not first.target:
            code[index] = _mark(first, second, role)
    return replace(role, code=tuple(code))


def vector_sources(draft: Draft) -> tuple[Operand, ...]:
    """The sources that are emitted: vector registers, those of the pool and RZ included, in slot order."""
    return tuple(o for o in draft.src if o.value.file in EMITTED)


def _mark(first: Draft, second: Draft, role: RoleDraft) -> Draft:
    ours, theirs = vector_sources(first), vector_sources(second)
    written = {(o.value.id, i) for o in first.dst for i in range(o.offset, o.offset + o.count)}
    marked = {
        slot
        for slot, (a, b) in enumerate(zip(ours, theirs, strict=False))
        if a.count == b.count == 1
        and a.value.file == b.value.file == "vector"
        and role.registers[a.value.id] + a.offset == role.registers[b.value.id] + b.offset
        and (a.value.id, a.offset) not in written
    }
    if not marked:
        return first
    slots = {id(ours[slot]) for slot in marked}
    return replace(first, src=tuple(replace(o, reuse=True) if id(o) in slots else o for o in first.src))
