"""Which tiles in shared memory a matrix instruction reads, and at which mbarrier their copies land."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from heddle.errors import UnsupportedError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Access, BarrierRef, Instruction, WarpProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """`barrier`: first element among the CTA's mbarriers; `ring`: its number, -1 for none; `bytes` of a phase."""

    barrier: int
    ring: int
    offset: int
    bytes: int


def copies_of(program: WarpProgram) -> Mapping[str, BarrierRef]:
    """Return for each object in shared memory that bulk copies fill the mbarrier at which they land."""
    found: dict[str, BarrierRef] = {}
    for instruction in program.instructions:
        if OPCODES[instruction.op].unit is Unit.BULK_LOAD and instruction.barrier is not None:
            for access in accesses(program, instruction, written=True):
                found[access.object] = instruction.barrier
    return found


def accesses(program: WarpProgram, instruction: Instruction, *, written: bool) -> tuple[Access, ...]:
    """Return what an instruction's effect writes, or reads."""
    if instruction.effect is None:
        return ()
    effect = program.effects[instruction.effect]
    return effect.writes if written else effect.reads


def phase_bytes(program: WarpProgram, barrier: str) -> int:
    """Return the bytes that each phase of a barrier expects, 0 where phases differ."""
    expected = {
        i.bytes
        for i in program.instructions
        if i.barrier is not None and i.barrier.name == barrier and OPCODES[i.op].unit is Unit.MBARRIER_EXPECT
    }
    return expected.pop() if len(expected) == 1 else 0


def tiles_of(program: WarpProgram) -> Mapping[int, tuple[Tile, ...]]:
    """Return the tiles that each matrix instruction reads, by pc. Raises UnsupportedError where they are not known."""
    copies = copies_of(program)
    return {
        pc: tuple(dict.fromkeys(_tiles(program, instruction, copies)))
        for pc, instruction in enumerate(program.instructions)
        if OPCODES[instruction.op].unit is Unit.WGMMA
    }


def _tiles(program: WarpProgram, instruction: Instruction, copies: Mapping[str, BarrierRef]) -> Iterator[Tile]:
    rings = [ring.name for ring in program.rings]
    first, at = 0, {}
    for barrier in program.barriers:
        at[barrier.name] = first
        first += barrier.count
    for access in accesses(program, instruction, written=False):
        reference = copies.get(access.object)
        if reference is None:
            continue
        if access.ring is not None and access.ring != reference.ring:
            raise UnsupportedError(
                f"{program.name}: {instruction.op} reads {access.object} by ring {access.ring}, "
                f"which is filled by ring {reference.ring}"
            )
        size = phase_bytes(program, reference.name)
        if not size:
            raise UnsupportedError(f"{program.name}: phases of {reference.name} differ in bytes")
        ring = rings.index(reference.ring) if reference.ring is not None else -1
        offset = access.stage_offset if access.ring is not None else reference.offset
        yield Tile(barrier=at[reference.name], ring=ring, offset=offset, bytes=size)
