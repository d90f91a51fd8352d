"""The writer of one role's code: emits drafts, keeps loops, rings, values of register tiles and the source line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from heddle.errors import SourceLocation, UserError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import (
    BarrierUse,
    GlobalRef,
    Op,
    RegisterTile,
    RoleBody,
    SharedRef,
    SharedTile,
    TileProgram,
    TmemRef,
)
from heddle.ir.warp import LOOP_LEVELS, Access, BarrierRef, Count, DataObject, Effect, Instruction
from heddle.machine.spec import Machine
from heddle.passes.draft import DEFINE, LABEL, Draft, File, Operand, Value, whole
from heddle.passes.layout_to_warps import LaidOut, WarpLayout
from heddle.passes.select.tables import Tables

FRAGMENT_ROW_LANES = 4
"""Lanes that share a row of a fragment (PTX ISA, matrix fragments)."""


SECOND_OPERAND_REGISTERS = 2
"""Of one mma.sync: 16 x 8 elements of 16 bit (PTX ISA)."""
WIDEST_ACCESS_REGISTERS = 4
"""Of a lane: 16 bytes."""


def column_value_registers(layout: WarpLayout) -> int:
    """Registers of one value of a tile spread as second operand: that of a product, or what one load brings."""
    if layout.tile.dtype in ("fp16", "bf16") and layout.tile.rows > 1:
        return SECOND_OPERAND_REGISTERS
    count = layout.band_registers
    return next(width for width in (WIDEST_ACCESS_REGISTERS, 2, 1) if count % width == 0)


def _copied(tile: RegisterTile) -> bool:
    """Whether warps have copies of the same elements: a row vector, operands, or one column for warps side by side."""
    vector = tile.spread != "fragments" and tile.rows == 1 and tile.read_by != "all"
    return vector or tile.spread in ("first", "second") or (tile.cols == 1 and tile.warp_grid[1] > 1)


@dataclass(frozen=True, slots=True)
class Path:
    """What runs only for the first `count` fibers of a role, or for the others."""

    count: Count
    others: bool

    def params(self, row_lanes: int) -> dict[str, float | int | str]:
        """What an effect says of it (`heddle.ir.warp.Effect`)."""
        return {
            "fibers": self.count.value + self.count.offset,
            "fibers_attribute": self.count.attribute or "",
            "fibers_others": int(self.others),
            "row_lanes": row_lanes,
        }


@dataclass(slots=True)
class RoleWriter:
    """Collects the code of one role. `options`: see `SelectInstructions`."""

    laid_out: LaidOut
    machine: Machine
    tables: Tables
    role: RoleBody
    first_warp: int
    hoisted_descriptors: bool = True
    code: list[Draft] = field(default_factory=list)
    entry: list[Draft] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    where: SourceLocation | None = None
    operation: str = ""
    arrived: bool = False  # a WARPGROUP.ARRIVE stands before the current run of wgmma
    matrix_sources: list[tuple[Value, int]] = field(default_factory=list)  # register operands of wgmma, place in code
    fragments: dict[tuple[object, ...], Value] = field(default_factory=dict)  # of mma.sync, by operand and place
    shared_reads: list[Operand] = field(default_factory=list)  # mode fiber: results of loads from shared memory
    matrix_reads: list[Operand] = field(default_factory=list)  # mode fiber: operands beside those in shared memory
    tensor_memory_stores: list[Operand] = field(default_factory=list)  # that nothing has waited for
    tensor_memory_loads: list[Operand] = field(default_factory=list)  # mode fiber: that no token has waited for
    path: Path | None = None  # where only some fibers run
    last_path: Path | None = None
    whole_rows: frozenset[str] = frozenset()  # tiles of the fragment layout with one value for 16 rows
    summed_columns: frozenset[str] = frozenset()  # pool tensors whose atoms follow each other down the rows
    _values: int = 0
    _labels: int = 0
    _kept: dict[str, Value] = field(default_factory=dict)
    _tiles: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def program(self) -> TileProgram:
        """The tile program being lowered."""
        return self.laid_out.program

    @property
    def _pool(self) -> set[str]:
        return {tile.name for tile in self.program.pool}

    # values

    def value(self, name: str, count: int = 1, file: File = "vector", tile: str = "", align: int = 0) -> Value:
        """A new value; by default aligned to its size, at most 8 registers."""
        self._values += 1
        size = align or min(8, 1 << (count - 1).bit_length())
        return Value(self._values, name, count, size, file, tile)

    def kept(self, name: str, count: int = 1, file: File = "uniform", op: str = "UMOV") -> Operand:
        """A value that is set once at the role's entry by `op` and lives as long as it is used."""
        if name not in self._kept:
            value = self.value(name, count, file)
            self._kept[name] = value
            for i in range(count):
                row = Instruction(op=op, source=self.tables.source(self.role.where, "entry"))
                self.entry.append(Draft(row=row, dst=(Operand(value, i),)))
        return whole(self._kept[name])

    def tile_values(self, name: str) -> tuple[Value, ...]:
        """The values of a register tile: one a band; in the fragment layout one a 16 x 8 atom, or one for 16 rows.

        Of a tile that overlays another: those of the other, of which it takes the first registers.
        """
        under = self.under(name)
        if under is not None:
            return self.tile_values(under)
        if name in self._pool:
            layout = self.layout(name)
            align = min(8, 1 << (layout.band_registers - 1).bit_length())
            return self.tables.pool_values(name, layout.bands, layout.band_registers, align)
        if name not in self._tiles:
            layout = self.layout(name)
            if layout.kind == "second":
                count = column_value_registers(layout)
                many = layout.band_registers // count
                self._tiles[name] = tuple(self.value(f"{name}.{i}", count, tile=name) for i in range(many))
                return self._tiles[name]
            atoms = 1
            if layout.kind == "fragment" and layout.cols > 1:
                wide = 16 if dtype_bytes(layout.tile.dtype) == 2 and layout.cols % 16 == 0 else 8  # an A operand
                atoms = layout.rows // 16 * (1 if name in self.whole_rows else layout.cols // wide)
            elif layout.kind == "rows" and layout.cols > 1:
                atoms = layout.cols // layout.block_cols
            count = layout.band_registers // atoms
            self._tiles[name] = tuple(self.value(f"{name}.{i}", count, tile=name) for i in range(atoms * layout.bands))
        return self._tiles[name]

    def tile_registers(self, name: str) -> list[Operand]:
        """All registers of a tile, in the order of its layout."""
        taken = self.layout(name).band_registers if self.under(name) is not None else None
        return [Operand(v, i) for v in self.tile_values(name) for i in range(taken or v.count)]

    def under(self, name: str) -> str | None:
        """The tile whose registers this one takes, if any."""
        return self.layout(name).tile.overlays

    def layout(self, name: str) -> WarpLayout:
        """The layout of a register tile in this role."""
        return self.laid_out.layouts[self.role.name, name]

    # code

    def emit(
        self,
        op: str,
        dst: Value | Operand | Iterable[Operand] = (),
        src: Iterable[Operand] = (),
        *,
        after: Iterable[Operand] = (),
        after_read: Iterable[Operand] = (),
        accumulates: bool = False,
        target: str = "",
        **row: Any,
    ) -> None:
        """Append one instruction; keyword arguments are fields of `Instruction`."""
        if isinstance(dst, Value):
            dst = (whole(dst),)
        elif isinstance(dst, Operand):
            dst = (dst,)
        instruction = Instruction(op=op, source=self.tables.source(self.where, self.operation), **row)
        self.code.append(
            Draft(
                row=instruction,
                dst=tuple(dst),
                src=tuple(src),
                after=tuple(after),
                after_read=tuple(after_read),
                accumulates=accumulates,
                target=target,
            )
        )

    def scalar(self, op: str, *src: Operand, name: str = "t") -> Operand:
        """Emit an operation with one new register as result: uniform (U*), predicate (*SETP), else vector."""
        file: File = "uniform" if op.startswith("U") or op == "R2UR" else "vector"
        if op.endswith("SETP") or op in ("PLOP3", "ELECT"):
            file = "predicate"
        result = Operand(self.value(name, file=file))
        self.emit(op, result, src)
        return result

    def update(self, op: str, kept: Operand, *src: Operand) -> None:
        """Emit kept = op(kept, src)."""
        self.emit(op, kept, (kept, *src))

    def define(self, values: Iterable[Value]) -> None:
        """State that the old contents of values are dead here (their next use overwrites them)."""
        self.emit(DEFINE, [whole(v) for v in values])

    def label(self) -> str:
        """A new label name."""
        self._labels += 1
        return f"L{self._labels}"

    def place(self, label: str) -> None:
        """Put a label at this point of the code."""
        self.code.append(Draft(row=Instruction(op=LABEL), label=label))

    # references

    def level(self, loop: str | None) -> int:
        """The loop level that a loop's counter has in this role (0 without a loop)."""
        if loop is None:
            return 0
        if loop not in self.loops:
            raise unknown_name("loop", loop, self.loops, self.where)
        return self.loops.index(loop)

    def enter_loop(self, name: str) -> int:
        """Open a loop; returns its level."""
        if len(self.loops) == LOOP_LEVELS:
            raise UserError(f"loop {name} is nested deeper than {LOOP_LEVELS} levels", where=self.where)
        self.loops.append(name)
        return len(self.loops) - 1

    def stage(self, ring: str) -> Operand:
        """The stage index of a ring, in a uniform register."""
        return self.kept(f"{ring}.stage")

    def phase(self, ring: str) -> Operand:
        """The phase bit of a ring."""
        return self.kept(f"{ring}.phase")

    def barrier(self, use: BarrierUse) -> BarrierRef:
        """The reference to an mbarrier; checks the name."""
        names = {b.name for b in self.program.barriers}
        if use.name not in names:
            raise unknown_name("mbarrier", use.name, names, self.where)
        return BarrierRef(name=use.name, ring=use.ring, offset=use.ahead, flip=use.flip, cta=use.cta)

    def shared_tile(self, name: str) -> SharedTile:
        """The shared tile called `name`."""
        for tile in self.program.shared:
            if tile.name == name:
                return tile
        raise unknown_name("shared tile", name, (t.name for t in self.program.shared), self.where)

    def shared_access(self, ref: SharedRef) -> Access:
        """The access of a shared box."""
        return Access(
            object=ref.tile,
            row=ref.row,
            col=ref.col,
            rows=ref.rows,
            cols=ref.cols,
            ring=ref.ring,
            stage_offset=ref.ahead,
            cta_row=ref.cta_row,
        )

    def tmem_access(self, ref: TmemRef) -> Access:
        """The access of a tensor-memory box."""
        return Access(object=ref.tile, row=ref.row, col=ref.col, rows=ref.rows, cols=ref.cols, ring=ref.ring)

    def global_access(self, ref: GlobalRef) -> Access:
        """The access of a global box."""
        return self.tables.global_access(ref, self.level(ref.loop))

    def tile_object(self, name: str) -> str:
        """The object of a register tile of this role."""
        layout = self.layout(name)
        tile = layout.tile
        rows = layout.rows * layout.warps if tile.spread == "operand" else tile.rows
        return self.tables.add_object(
            DataObject(
                name=name if name in self._pool else f"{self.role.name}.{name}",
                space="register",
                shape=(rows, tile.cols),
                dtype=tile.dtype,
                scope=self._scope(name, tile),
            )
        )

    def _scope(self, name: str, tile: RegisterTile) -> Literal["warp", "subpartition", "cta"]:
        if not _copied(tile):
            return "cta"
        return "subpartition" if name in self._pool and tile.spread == "columns" else "warp"

    def tile_band(self, name: str, band: int) -> Access:
        """What this warp holds of a register tile, in one band."""
        return self.layout(name).band(band, self.tile_object(name))

    def effect(self, kind: str, reads: Iterable[Access], writes: Iterable[Access], **params: float | int | str) -> int:
        """Index of an effect; where fibers have parted it touches the rows of those that run."""
        if self.path is not None:
            params |= self.path.params(1 if self.program.architecture == "sm_100" else FRAGMENT_ROW_LANES)
        return self.tables.effect(Effect(kind=kind, reads=tuple(reads), writes=tuple(writes), params=params))

    def attach_effect(self, index: int) -> None:
        """Give the last instruction an effect."""
        last = self.code[-1]
        self.code[-1] = replace(last, row=replace(last.row, effect=index))

    def begin(self, op: Op) -> None:
        """Set the source line for what follows."""
        self.where = op.where or self.where
        self.operation = type(op).__name__
