"""Which mbarriers and rings are compared with each other: the roots of `core.phases`."""

from __future__ import annotations

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.verify_flow import reachable
from heddle.ir.warp import WarpProgram
from heddle.sim.core.layout import PHASE_ABSOLUTE, PHASE_UNASKED, RINGS

ABSOLUTE = "absolute"  # what waits without a ring asks for a certain parity


def phase_roots(program: WarpProgram) -> list[int]:
    """Return the root of each mbarrier of a CTA, then of each ring: an mbarrier, PHASE_ABSOLUTE or PHASE_UNASKED."""
    parts = _parts(program)
    roots: dict[str, int] = {}
    elements: list[int] = []
    for barrier in program.barriers:
        part = parts.get(f"barrier {barrier.name}")
        root = PHASE_UNASKED if part is None else roots.setdefault(part, len(elements))
        elements += [PHASE_ABSOLUTE if part == parts.get(ABSOLUTE, "") else root] * barrier.count
    rings = []
    for ring in program.rings:
        part = parts.get(f"ring {ring.name}")
        root = PHASE_UNASKED if part is None else roots[part]
        rings.append(PHASE_ABSOLUTE if part == parts.get(ABSOLUTE, "") else root)
    return elements + rings + [PHASE_UNASKED] * (RINGS - len(rings))


def rings_asked(program: WarpProgram) -> list[int]:
    """Return for each role the mask of rings by which it waits for mbarriers."""
    numbers = {ring.name: number for number, ring in enumerate(program.rings)}
    masks = []
    for role in program.roles:
        code = (program.instructions[pc] for pc in reachable(program, role))
        waits = (i.barrier for i in code if OPCODES[i.op].unit is Unit.MBARRIER_WAIT)
        masks.append(sum({1 << numbers[b.ring] for b in waits if b is not None and b.ring is not None}))
    return masks


def _parts(program: WarpProgram) -> dict[str, str]:
    """Return for each barrier that is waited for, and each ring that is asked, the name of their connected part."""
    part: dict[str, str] = {}
    for instruction in program.instructions:
        reference = instruction.barrier
        if OPCODES[instruction.op].unit is Unit.MBARRIER_WAIT and reference is not None:
            ring = ABSOLUTE if reference.ring is None else f"ring {reference.ring}"
            barrier = f"barrier {reference.name}"
            old, new = part.setdefault(ring, ring), part.setdefault(barrier, barrier)
            part = {name: new if of == old else of for name, of in part.items()}
    return part
