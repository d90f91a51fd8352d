"""Instructions between selection and emission: registers are still values, branches still labels.

A `Draft` is an `Instruction` without registers plus its operands. Passes rewrite the list of drafts of each role;
labels keep branch targets valid when instructions are inserted. `emit` turns the result into a `WarpProgram`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from heddle.ir.tile import RoleBody, TileProgram
from heddle.ir.warp import Control, DataObject, Effect, Instruction, Source, Stream, Work

File = Literal["vector", "uniform", "predicate", "pool", "tensor", "zero"]
LABEL = "#label"  # marks a branch target
DEFINE = "#define"  # a tile's old contents are dead here; costs nothing
BUSY_BIT = "#busy_bit"  # its sources' last accesses before it leave them full or empty; becomes binds
NO_CONTROL = Control()
PSEUDO = frozenset({LABEL, DEFINE, BUSY_BIT})
EMITTED: frozenset[str] = frozenset({"vector", "pool", "tensor", "zero"})
"""Files whose registers stand in the slots of an instruction."""
SHARED_FILES: frozenset[str] = frozenset({"pool", "tensor", "zero"})
"""Files that a role does not allocate: pool tensors and tensor memory, which all roles share, and register RZ."""


@dataclass(frozen=True, slots=True)
class Value:
    """`count` consecutive registers of one file, aligned to `align`; `tile` names the register tile they belong to."""

    id: int
    name: str
    count: int = 1
    align: int = 1
    file: File = "vector"
    tile: str = ""


ZERO = Value(0, "RZ", file="zero")
"""Stands in a slot whose operand is not in a register."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Registers [offset, offset + count) of a value; `reuse` keeps a single register in the operand cache.

    `place` (pool): the subpartition in which they are read; None: that of the weft.
    """

    value: Value
    offset: int = 0
    count: int = 1
    reuse: bool = False
    place: int | None = None

    def elements(self) -> tuple[tuple[int, int], ...]:
        """Return (value id, index) of each register."""
        return tuple((self.value.id, i) for i in range(self.offset, self.offset + self.count))


def whole(value: Value) -> Operand:
    """All registers of a value as one operand."""
    return Operand(value, 0, value.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One instruction to be. `accumulates`: the first destination is also read. `target`, `label`: branch and its aim.

    `after`: registers that must have been written before it issues although it does not read them. `after_read`:
    registers whose late readers must have read their operands before it issues.
    """

    row: Instruction
    dst: tuple[Operand, ...] = ()
    src: tuple[Operand, ...] = ()
    after: tuple[Operand, ...] = ()
    after_read: tuple[Operand, ...] = ()
    accumulates: bool = False
    target: str = ""
    label: str = ""
    control: Control = NO_CONTROL

    @property
    def op(self) -> str:
        """The opcode, or a pseudo operation."""
        return self.row.op

    def reads(self) -> tuple[Operand, ...]:
        """Operands that are read, an accumulator included."""
        return self.src + self.dst[:1] if self.accumulates else self.src


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDraft:
    """A role's code. `registers`: first register of each value id, once allocated (file by file).

    `private_first` (mode fiber): the register of a subpartition at which the role's own registers begin.
    """

    body: RoleBody
    first_warp: int
    code: tuple[Draft, ...]
    registers: Mapping[int, int] = field(default_factory=dict)
    peak_live: int = 0
    private_first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftProgram:
    """A program between selection and emission: code of each role and the tables that all roles share."""

    tile: TileProgram
    roles: tuple[RoleDraft, ...]
    streams: tuple[Stream, ...]
    work: Work
    sources: tuple[Source, ...]
    effects: tuple[Effect, ...]
    objects: tuple[DataObject, ...]
