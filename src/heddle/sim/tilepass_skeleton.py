"""The skeleton of a program: its memory accesses and the loops and skips around them, for the tile pass.

All warps of a role and all CTAs of a cluster are folded into one access row (pieces and bytes added up) where they
touch the same block; accesses of one stream position in one straight run of code are one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, Role, Stream, WarpProgram
from heddle.sim.core import memory_play as play
from heddle.sim.core.memory import piece_mask
from heddle.sim.core.memory_layout import KIND_LOAD, KIND_REDUCE, KIND_STORE
from heddle.sim.launch_work import role_code

KINDS = {"load": KIND_LOAD, "store": KIND_STORE, "reduce": KIND_REDUCE}
Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """Rows [row, `play.ROW_WORDS`]; entries[0]: first row of each role, entries[1]: that from the second item on."""

    code: Array
    entries: Array


def acting_ranks(instruction: Instruction, role: Role) -> range:
    """Return the ranks of the role's warps on which the instruction acts."""
    return {"warp": range(role.warps), "group": range(0, role.warps, 4), "role": range(1)}[instruction.by]


def part_of(instruction: Instruction, stream: Stream, rank: int, cta_rank: int) -> int:
    """Return which part of the block warp `rank` of the CTA with rank `cta_rank` accesses."""
    reference = instruction.stream
    assert reference is not None
    part = reference.part + (rank * reference.rank_stride if reference.part_by_rank else 0)
    return part + (cta_rank * (reference.parts // stream.multicast) if stream.multicast > 1 else 0)


def _accesses(
    program: WarpProgram, role: Role, instruction: Instruction, stream: Stream, pieces: int
) -> dict[int, tuple[int, int]]:
    """Return, by block offset of the CTA, the pieces and bytes that the whole role accesses in the whole cluster."""
    assert instruction.stream is not None
    found: dict[int, tuple[int, int]] = {}
    for cta_rank in range(1 if role.leader_only else program.cluster_size):
        delta = cta_rank * stream.cta_step
        for rank in acting_ranks(instruction, role):
            part = part_of(instruction, stream, rank, cta_rank)
            mask, nbytes = found.get(delta, (0, 0))
            mask |= piece_mask(pieces, part, instruction.stream.parts)
            found[delta] = (mask, nbytes + instruction.bytes)
    return found


class _Builder:
    """Collects rows of one program; targets are program counters until `finish` maps them to rows."""

    def __init__(self, program: WarpProgram, pieces: list[int]) -> None:
        self.program, self.pieces = program, pieces
        self.index = {stream.name: number for number, stream in enumerate(program.streams)}
        self.attribute = {name: number for number, name in enumerate(program.work.attributes)}
        self.rows: list[list[int]] = []
        self.open: dict[tuple[int, ...], int] = {}  # access rows of the current straight run of code

    def access(self, role: Role, instruction: Instruction) -> None:
        """Add the rows of a memory instruction, or join them to rows of the same run of code."""
        reference = instruction.stream
        assert reference is not None
        number = self.index[reference.name]
        stream = self.program.streams[number]
        for delta, (mask, nbytes) in _accesses(self.program, role, instruction, stream, self.pieces[number]).items():
            key = (number, reference.offset, delta)
            if key not in self.open:
                self.open[key] = len(self.rows)
                base = self.attribute[stream.base]
                where = (base, delta, stream.level, reference.offset, stream.step)
                self.rows.append([play.OP_ACCESS, number, KINDS[stream.direction], *where, 0, 0])
            row = self.rows[self.open[key]]
            row[play.MASK] |= mask
            row[play.BYTES] += nbytes

    def branch(self, instruction: Instruction) -> None:
        """Add a loop or skip row."""
        row = [0] * play.ROW_WORDS
        row[play.TARGET] = instruction.target or 0
        if OPCODES[instruction.op].unit is Unit.SKIP:
            row[play.OP] = play.OP_SKIP
            row[play.LOOP_LEVEL] = self.attribute[instruction.attribute or ""]
        else:
            count = instruction.count
            row[play.OP], row[play.LOOP_LEVEL] = play.OP_LOOP, instruction.level
            row[play.COUNT_VALUE] = count.value if count else 1
            row[play.COUNT_OFFSET] = count.offset if count else 0
            named = count is not None and count.attribute is not None
            row[play.COUNT_ATTRIBUTE] = self.attribute[count.attribute or ""] if count and named else -1
        self.rows.append(row)

    def role(self, role: Role) -> tuple[int, int]:
        """Add one role's rows and return the first rows for its first and its later items."""
        begin, end = role_code(self.program, role)
        code = self.program.instructions
        targets = {code[pc].target for pc in range(begin, end)}
        row_of: dict[int, int] = {}
        first = len(self.rows)
        again = begin
        for pc in range(begin, end):
            if pc in targets:
                self.open = {}
            row_of[pc] = len(self.rows)
            unit = OPCODES[code[pc].op].unit
            if unit in (Unit.LOOP, Unit.SKIP):
                self.branch(code[pc])
                self.open = {}
            elif unit is Unit.NEXT_ITEM:
                target = code[pc].target
                again = begin if target is None else target
                break
            elif code[pc].stream is not None:
                self.access(role, code[pc])
        row_of.setdefault(end, len(self.rows))
        self.open = {}
        self.rows.append([play.OP_END] + [0] * (play.ROW_WORDS - 1))
        for row in self.rows[first:-1]:
            if row[play.OP] in (play.OP_LOOP, play.OP_SKIP):
                row[play.TARGET] = row_of.get(row[play.TARGET], len(self.rows) - 1)
        return first, row_of.get(again, first)


def build_skeleton(program: WarpProgram, pieces: list[int]) -> Skeleton:
    """Return the skeleton of a program. `pieces[s]`: pieces of a block of stream s. Roles without accesses drop out."""
    builder = _Builder(program, pieces)
    entries: list[tuple[int, int]] = []
    for role in program.roles:
        before = len(builder.rows)
        entry = builder.role(role)
        if any(row[play.OP] == play.OP_ACCESS for row in builder.rows[before:]):
            entries.append(entry)
        else:
            del builder.rows[before:]
    code = np.array(builder.rows or [[play.OP_END] + [0] * (play.ROW_WORDS - 1)], dtype=np.int64)
    return Skeleton(code=code, entries=np.array(entries, dtype=np.int64).reshape(-1, 2).T.copy())
