"""Pass 7 (mode fiber): turn statements of full and empty into DEPBAR.BIND in front of the accesses that they mean.

It emits patterns A1, B1, D1, F1 and G1 of the protocols alone: a producer's last write of each register holds it, a
consumer's last read gives it back, each bound to the instruction itself. What wefts of several subpartitions read (B1)
is held for each of them, and each reader gives back its own part (scoped). A separate DEPBAR would deadlock. It runs
after the control fields are set, so that nothing can come between a bind and its partner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from heddle.errors import SourceLocation, UserError
from heddle.ir.tile_walk import reading_subpartitions
from heddle.ir.warp import Control, Instruction
from heddle.ir.warp_fiber import BIND_SLOTS, OWN, Bind
from heddle.machine.spec import Machine
from heddle.passes.draft import BUSY_BIT, Draft, DraftProgram, Operand, RoleDraft
from heddle.passes.reuse import vector_sources
from heddle.passes.timing import is_real

Element = tuple[int, int, int]
"""Value id, index and subpartition (OWN: that of the weft)."""
Readers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InsertBusyBits:
    """Insert binds. Raises UserError at a statement that no access of its own stretch of code can carry."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Return the program with binds and without statements."""
        readers = _readers_of(program)
        return replace(program, roles=tuple(_role(role, program, readers) for role in program.roles))


def _role(role: RoleDraft, program: DraftProgram, readers: Mapping[str, Readers]) -> RoleDraft:
    binds: dict[int, Bind] = {}
    for index, draft in enumerate(role.code):
        if draft.op == BUSY_BIT:
            find = _holds if draft.row.bit == "full" else _consumes
            for partner, bind in find(role.code, index, program, readers):
                binds[partner] = _joined(binds.get(partner), bind)
    code: list[Draft] = []
    for index, draft in enumerate(role.code):
        if index in binds:
            row = Instruction(op="DEPBAR.BIND", bind=binds[index], source=draft.row.source)
            code.append(Draft(row=row, control=Control()))
        if draft.op != BUSY_BIT:
            code.append(draft)
    return replace(role, code=tuple(code))


def _joined(one: Bind | None, other: Bind) -> Bind:
    if one is None:
        return other
    return Bind(
        consume=tuple(sorted({*one.consume, *other.consume})),
        hold=one.hold or other.hold,
        readers=one.readers or other.readers,
        scoped=tuple(sorted({*one.scoped, *other.scoped})),
    )


def _holds(
    code: tuple[Draft, ...], mark: int, program: DraftProgram, readers: Mapping[str, Readers]
) -> list[tuple[int, Bind]]:
    missing, found = _stated(code[mark]), []
    held_for = readers.get(code[mark].src[0].value.tile, ())
    for index in _before(code, mark):
        written = {e for operand in code[index].dst for e in _elements(operand)}
        if written & missing:
            _whole(written, missing, code[mark], program)
            missing -= written
            found.append((index, Bind(hold=True, readers=held_for)))
    if missing:
        raise _lost(code[mark], program, "written")
    return found


def _consumes(
    code: tuple[Draft, ...], mark: int, program: DraftProgram, readers: Mapping[str, Readers]
) -> list[tuple[int, Bind]]:
    missing, found = _stated(code[mark]), []
    for index in _before(code, mark):
        slots = []
        for slot, operand in enumerate(vector_sources(code[index])[:BIND_SLOTS]):
            read = set(_elements(operand))
            if read & missing:  # a register in two slots is consumed in the first of them only
                _whole(read, missing, code[mark], program)
                missing -= read
                slots.append(slot)
        if slots:
            operands = vector_sources(code[index])
            scoped = tuple(slot for slot in slots if readers.get(operands[slot].value.tile))
            found.append((index, Bind(consume=tuple(slots), scoped=scoped)))
    if missing:
        raise _lost(code[mark], program, "read")
    return found


def _readers_of(program: DraftProgram) -> dict[str, Readers]:
    """By pool tensor: the subpartitions for which a datum is held, if several read it; else whoever does."""
    found = {}
    for tile in program.tile.pool:
        readers = reading_subpartitions(program.tile, tile.name) if tile.read_by == "all" else ()
        found[tile.name] = readers if len(readers) > 1 else ()
    return found


def _stated(mark: Draft) -> set[Element]:
    return {element for operand in mark.src for element in _elements(operand)}


def _elements(operand: Operand) -> Iterator[Element]:
    for value, index in operand.elements():
        yield value, index, OWN if operand.place is None else operand.place


def _before(code: tuple[Draft, ...], mark: int) -> Iterator[int]:
    """Indices of the real instructions before a statement, backwards to the last label or branch."""
    for index in range(mark - 1, -1, -1):
        draft = code[index]
        if draft.label or draft.target:
            return
        if is_real(draft):
            yield index


def _whole(touched: set[Element], missing: set[Element], mark: Draft, program: DraftProgram) -> None:
    """One bind is for all registers of a slot: none of them may be bound already, or belong to something else."""
    if not touched <= missing:
        raise UserError(
            "an instruction touches registers of which only some are stated here; a bind is for whole operands",
            where=_line(mark, program),
            hint="state a tensor that is written and read in the same pieces",
        )


def _lost(mark: Draft, program: DraftProgram, verb: str) -> UserError:
    operand: Operand = mark.src[0]
    return UserError(
        f"set_busy_bit({operand.value.tile}, {mark.row.bit!r}): some registers are not {verb} between the loop or "
        "condition that this line is in and this line",
        where=_line(mark, program),
        hint=f"put it behind the operation that has {verb} the whole tensor, in the same body",
    )


def _line(mark: Draft, program: DraftProgram) -> SourceLocation:
    source = program.sources[mark.row.source]
    return SourceLocation(source.file, source.line)
