"""Ampere in mode fiber: mma.sync with both operands in vector registers, B in those of any subpartition.

A tensor that all subpartitions read lies where it was loaded: weft q of the loading role has rows [q R, (q + 1) R),
R a quarter of the rows, or such columns, as atoms of 16 x 16 elements, four registers each, in its own subpartition.
ldmatrix gives each half of an atom, 8 columns of the product, in two neighbouring registers: halves of rows, or of
columns where the rows are summed over. So element (r, c) is in subpartition r div R, in atom ((r mod R) div 16, c div
16), and accordingly for columns. Atoms follow each other along the side that is not divided, so that those of one step
of a product over the divided side are neighbours (`fiber_wmma`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import CpAsync, LoadShared, Mma, PoolRef, RegisterTile
from heddle.ir.tile_walk import Place, home_subpartitions, walk_body
from heddle.ir.warp import Access, DataObject
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.passes.draft import ZERO, Operand, whole
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select import accesses, loads, sm_80
from heddle.passes.select.writer import RoleWriter

ATOM = 16  # rows and columns of an operand atom
ATOM_REGISTERS = 4
ATOM_BYTES = 512
COLS = 8  # of one mma.sync
ELEMENT_BYTES = 2  # operands of 16 bit
GROUP_WEFTS = 4  # that share a tensor, one a subpartition
CHAINS = 4  # sums that grow side by side on their way to the pool: four products cover the latency of one
NOTHING = whole(ZERO)


def lower_cp_async(writer: RoleWriter, op: CpAsync) -> None:
    """Each weft copies what it will load itself, so that no barrier is needed between copy and load.

    What all wefts load whole they copy in parts, row by row: they must meet between.
    """
    grids = {
        writer.layout(load.dst).tile.warp_grid if not _copies(writer, load.dst) else (writer.role.warps, 1)
        for load, _ in walk_body(writer.role.body, Place(writer.role))
        if isinstance(load, LoadShared) and load.src.tile == op.dst.tile
    }
    if len(grids) > 1:
        raise UserError(
            f"role {writer.role.name} loads {op.dst.tile} in parts of its rows and in parts of its columns",
            where=writer.where,
            hint="its copies are divided as its loads are: use two shared tiles",
        )
    grid = next(iter(grids), (writer.role.warps, 1))

    def piece(box: Access, elements: int, index: int, warps: int) -> Access:
        return _piece(box, elements, index, grid)

    sm_80.lower_cp_async(writer, op, piece)


def _copies(writer: RoleWriter, name: str) -> bool:
    """Whether each weft has a copy of an operand in its own subpartition."""
    tile = writer.layout(name).tile
    return tile.spread == "operand" and tile.warp_grid[1] > 1


def lower_phased_cp_async(writer: RoleWriter, op: CpAsync) -> None:
    """Where barriers order the wefts they take turns, or each copies its own rows."""
    if op.own_rows:
        lower_cp_async(writer, op)
    else:
        sm_80.lower_cp_async(writer, op)


def _piece(box: Access, elements: int, index: int, grid: tuple[int, int]) -> Access:
    """The elements of one LDGSTS of each weft, whose part is a block of the box: rows of it, or parts of rows."""
    rows, cols = box.rows // grid[0], box.cols // grid[1]
    if box.rows % grid[0] or box.cols % grid[1] or (cols % elements and elements % cols):
        raise UserError(f"a copy of {box.rows} x {box.cols} elements does not divide among {grid[0]} x {grid[1]} wefts")
    across, height = max(1, cols // elements), max(1, elements // cols)  # pieces of a row, rows of a piece
    row, col = divmod(index, across)
    return replace(
        box,
        row=box.row + row * height,
        col=box.col + col * elements,
        rows=height,
        cols=min(cols, elements),
        rank_row=rows,
        rank_col=cols if grid[1] > 1 else 0,
        rank_cols=grid[1],
    )


def lower_load_shared(writer: RoleWriter, op: LoadShared) -> None:
    """Fragments by LDSM, one an atom; tiles of other types by plain loads."""
    tile, layout = writer.shared_tile(op.src.tile), writer.layout(op.dst)
    if layout.tile.dtype != tile.dtype or dtype_bytes(tile.dtype) != ELEMENT_BYTES or layout.cols % ATOM:
        loads.lower_load_shared(writer, op)
        return
    base = accesses.shared_base(writer, op.src)
    box, place = writer.shared_access(op.src), writer.tile_band(op.dst, 0)
    for row, col in _atoms(layout):
        address = writer.scalar("LOP3", base, name="address") if row or col else base  # the swizzle
        written = replace(place, row=place.row + row, col=place.col + col, rows=ATOM, cols=ATOM)
        read = replace(written, object=box.object, ring=box.ring, stage_offset=box.stage_offset)
        read = replace(read, row=box.row + row, col=box.col + col)
        if op.each or _copies(writer, op.dst):
            read = replace(read, rank_row=0)
        effect = writer.effect("copy", [read], [written])
        atom = operand_atom(writer, op.dst, row // ATOM, col // ATOM)
        writer.emit("LDSM", atom, (address,), bytes=ATOM_BYTES, effect=effect)


def _atoms(layout: WarpLayout) -> list[tuple[int, int]]:
    """First rows and columns of the atoms of a weft, in the order in which products take what lies step by step."""
    atoms = itertools.product(range(0, layout.rows, ATOM), range(0, layout.cols, ATOM))
    return sorted(atoms, key=lambda atom: atom[1]) if layout.tile.spread == "operand" else list(atoms)


@dataclass(frozen=True, slots=True)
class _Product:
    """The mma.syncs of one product of a weft. `chain`: where the sum grows, if the last step writes elsewhere.

    `homes`: the subpartitions of the parts of B; `home_of_a`: that of A, None if it is the weft's own.
    """

    writer: RoleWriter
    op: Mma
    acc: WarpLayout
    b: WarpLayout
    chain: str | None
    homes: tuple[int, ...]
    home_of_a: int | None

    @property
    def steps(self) -> int:
        """Steps of 16 that are summed over."""
        return self.op.depth // ATOM

    @property
    def rows(self) -> int:
        """Blocks of 16 rows of a weft."""
        return self.acc.rows // ATOM

    def columns(self) -> list[int]:
        """Blocks of 8 columns in an order in which neighbours lie in different subpartitions, where they can."""
        parts = self.b.tile.warp_grid[1 if self.op.b_transposed else 0]  # 1: B is divided along what is summed over
        each = self.op.columns // COLS // parts
        order = [(self.op.start + part) % parts for part in range(parts)]
        return [part * each + index for index in range(each) for part in order]

    def order(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (step, row, column, chain) of each product: which of the sums that grow side by side it adds to."""
        columns = self.columns()
        together = max(1, CHAINS // self.rows) if self.chain and self.op.plus is None else len(columns)
        for first in range(0, len(columns), together):
            for step in range(self.steps):
                for number, col in enumerate(columns[first : first + together]):
                    for row in range(self.rows):
                        yield step, row, col, number * self.rows + row

    def emit(self, step: int, row: int, col: int, chain: int) -> None:
        """One mma.sync. The last step of a chain adds to it and writes the destination."""
        writer, last = self.writer, step == self.steps - 1
        fresh = step == 0 and self.op.accumulate is False
        target = self._sum(None if last else self.chain, row, col, chain)
        added: tuple[Operand, ...] = (NOTHING,) if fresh else ()
        if last and self.chain and not fresh:
            added = (self._sum(self.chain, row, col, chain),)
        assert isinstance(self.op.a, str)
        writer.emit(
            "HMMA",
            target,
            (
                replace(operand_atom(writer, self.op.a, row, step), place=self.home_of_a),
                self._second(step, col),
                *added,
            ),
            accumulates=not added,
            shape=(ATOM, COLS, ATOM),
            form="rr",
            dtype=self.b.tile.dtype,
            effect=self._effect(step, row, col, fresh, last),
        )

    def _sum(self, chain: str | None, row: int, col: int, number: int) -> Operand:
        """Registers of the destination, or of a chain: those of `plus`, or of one that all columns use in turn."""
        name = self.op.plus if chain else self.op.acc
        if name is None:
            key = (self.op.acc, "chain", number)
            if key not in self.writer.fragments:
                self.writer.fragments[key] = self.writer.value(f"chain{number}", ATOM_REGISTERS)
            return whole(self.writer.fragments[key])
        assert isinstance(name, str)
        return _registers(self.writer, name, row * (self.acc.cols // COLS) + col)

    def _second(self, step: int, col: int) -> Operand:
        """Two registers of an atom of B, in the subpartition where it was loaded."""
        row, column = (step, col // 2) if self.op.b_transposed else (col // 2, step)
        place_row, row = divmod(row, self.b.rows // ATOM)
        place_col, column = divmod(column, self.b.cols // ATOM)
        place = self.homes[place_row + place_col]  # one of them is zero: it is divided along rows or columns
        atom = operand_atom(self.writer, self.b.tile.name, row, column)
        return replace(atom, offset=atom.offset + col % 2 * (ATOM_REGISTERS // 2), count=2, place=place)

    def _effect(self, step: int, row: int, col: int, fresh: bool, last: bool) -> int:
        writer, op = self.writer, self.op
        assert isinstance(op.acc, str)
        assert isinstance(op.a, str)
        a = replace(rows_of(writer, op.a, row), col=step * ATOM, cols=ATOM)
        object_b = writer.tile_object(self.b.tile.name)
        if op.b_transposed:
            b = Access(object=object_b, row=step * ATOM, col=col * COLS, rows=ATOM, cols=COLS)
        else:
            b = Access(object=object_b, row=col * COLS, col=step * ATOM, rows=COLS, cols=ATOM)
        total = replace(rows_of(writer, op.acc, row), col=col * COLS, cols=COLS)
        grown = replace(total, object=chain_object(writer, op)) if self.chain else total
        reads = [a, b, grown] if last and self.chain and not fresh else [a, b]
        params = {"accumulate": 0 if fresh else 1} | ({"transposed": 1} if op.b_transposed else {})
        return writer.effect("mma", reads, [total if last else grown], **params)


def rows_of(writer: RoleWriter, name: str, row: int) -> Access:
    """Block `row` of 16 rows that a weft holds of a tile."""
    band = writer.tile_band(name, 0)
    return replace(band, row=band.row + row * ATOM, rows=ATOM)


def chain_object(writer: RoleWriter, op: Mma) -> str:
    """The object in which a sum grows on its way to the pool."""
    if op.plus is not None:
        return writer.tile_object(op.plus)
    assert isinstance(op.acc, str)
    tile = writer.layout(op.acc).tile
    name = f"{writer.role.name}.{tile.name}.chain"
    shape = (tile.rows, tile.cols)
    return writer.tables.add_object(DataObject(name=name, space="register", shape=shape, dtype=tile.dtype, scope="cta"))


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """All mma.syncs of a weft. A sum that goes to the pool grows in registers of the weft; its last step writes it."""
    acc, b = check(writer, op)
    pool = {tile.name for tile in writer.program.pool}
    grows = "chain" if op.plus is not None or op.acc in pool else None
    product = _Product(
        writer, op, acc, b, grows, home_subpartitions(writer.program, b.tile.name), _home_of_a(writer, op)
    )
    for step, row, col, chain in product.order():
        product.emit(step, row, col, chain)


def _home_of_a(writer: RoleWriter, op: Mma) -> int | None:
    """Where another weft has put A for this one."""
    assert isinstance(op.a, str)
    if writer.layout(op.a).tile.read_by == "own":
        return None
    return home_subpartitions(writer.program, op.a)[0]


def check(writer: RoleWriter, op: Mma) -> tuple[WarpLayout, WarpLayout]:
    """Return the layouts of the destination and of B. Raises UserError for what no product takes."""
    if not isinstance(op.b, PoolRef) or not isinstance(op.a, str) or not isinstance(op.acc, str):
        raise UserError(
            "operands of a product of mode fiber on sm_80 are in registers: a tile or pool tensor of the weft's own "
            "rows, and a pool tensor that all subpartitions read",
            where=writer.where,
            hint="load them with k.load(...) first",
        )
    acc, b = writer.layout(op.acc), writer.layout(op.b.tile)
    if op.accumulate == "first_iteration":
        raise UserError("mma.sync always accumulates; fill the accumulator before the loop", where=writer.where)
    if op.accumulate is True and op.plus is None and op.acc in {tile.name for tile in writer.program.pool}:
        raise UserError(
            f"a product adds to pool tensor {op.acc!r}, which its reader gives back; add to registers of the role",
            where=writer.where,
            hint="pass plus=..., or accumulate=False",
        )
    if op.depth % ATOM or op.columns % (COLS * SUBPARTITIONS) or dtype_bytes(b.tile.dtype) != ELEMENT_BYTES:
        raise UserError(
            f"a product over {op.depth} with {op.columns} columns of {b.tile.dtype}; needs 16-bit elements, a multiple "
            f"of {ATOM}, and of {COLS * SUBPARTITIONS} columns",
            where=writer.where,
        )
    return acc, b


def along_columns(tile: RegisterTile) -> bool:
    """Tell whether a tensor that all subpartitions read is divided among them along its columns."""
    return tile.read_by == "all" and tile.warp_grid[1] > 1


def by_steps(tile: RegisterTile) -> bool:
    """Tell whether all atoms of one step of a product are neighbours in the registers of a tensor."""
    return tile.spread == "operand" or along_columns(tile)


def operand_atom(writer: RoleWriter, name: str, row: int, col: int) -> Operand:
    """The registers of one operand atom of a weft."""
    layout = writer.layout(name)
    if by_steps(layout.tile) or name in writer.summed_columns:
        return _registers(writer, name, col * (layout.rows // ATOM) + row)
    return _registers(writer, name, row * (layout.cols // ATOM) + col)


def _registers(writer: RoleWriter, name: str, index: int) -> Operand:
    """Registers of atom `index`: a pool tensor is one value, a tile of a role one an atom."""
    values = writer.tile_values(name)
    return Operand(values[0], index * ATOM_REGISTERS, ATOM_REGISTERS) if len(values) == 1 else whole(values[index])
