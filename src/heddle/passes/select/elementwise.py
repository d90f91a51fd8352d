"""Fill, element-by-element functions and row reductions on register tiles: a few fixed operations for each register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heddle.errors import UserError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Elementwise, Fill, Mask, Position, RowReduce
from heddle.ir.tile_math import OWN_ROWS
from heddle.passes.draft import File, Operand
from heddle.passes.layout_to_warps import ATOM_COLS, ATOM_LANE_COLS, ATOM_ROWS, WarpLayout
from heddle.passes.select.writer import RoleWriter

REGISTER_BYTES = 4
LANE_BITS = 32  # of a register
SHARING_LANES = {"fragment": 4, "group": 4, "lane": 1}
"""Lanes that share a row: four of an atom (PTX ISA, matrix fragments), or none; of `rows` the tile says it."""

# Operations for one fp32 register; "d" is the destination, "0", "1" the sources, "t" a temporary of the step before.
FP32_STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "add": (("FADD", "01"),),
    "sub": (("FADD", "01"),),
    "mul": (("FMUL", "01"),),
    "max": (("FMNMX", "01"),),
    "min": (("FMNMX", "01"),),
    "fma": (("FFMA", "012"),),
    "copy": (("MOV", "0"),),
    "scale": (("FMUL", "0"),),
    "neg": (("FMUL", "0"),),
    "relu": (("FMNMX", "0"),),
    "exp2": (("MUFU", "0"),),
    "reciprocal": (("MUFU", "0"),),
    "rsqrt": (("MUFU", "0"),),
    "exp": (("FMUL", "0"), ("MUFU", "t")),
    "div": (("MUFU", "1"), ("FMUL", "0t")),
    "log2": (("MUFU", "0"),),
    "scaled_sub": (("FFMA", "01"),),
    "exp2_scaled_sub": (("FFMA", "01"), ("MUFU", "t")),
    "choose": (("FSETP", "01"), ("FSEL", "01t")),
    "check": (("FSETP", "0"), ("PLOP3", "t"), ("MOV", "0")),
    "silu": (("FMUL", "0"), ("MUFU", "t"), ("FADD", "t"), ("MUFU", "t"), ("FMUL", "0t")),
}
CASTS = ("cast", "cast_regrouped")
PREDICATE_WRITERS = ("FSETP", "PLOP3")
PACKED_OPS = {"FADD": "HADD2", "FMUL": "HMUL2", "FFMA": "HFMA2"}  # two fp16 or bf16 elements a register


def lower_fill(writer: RoleWriter, op: Fill) -> None:
    """One move a register."""
    start = len(writer.code)
    for register in writer.tile_registers(op.dst):
        writer.emit("MOV", register)
    add_effects(writer, start, "fill", [], op.dst, value=op.value)


def lower_elementwise(writer: RoleWriter, op: Elementwise) -> None:
    """The function's operations on each register, then one effect a band."""
    start = len(writer.code)
    if op.function in CASTS:
        _cast(writer, op)
    elif op.function == "rotate":
        _rotate(writer, op)
    else:
        _steps(writer, op)
    add_elementwise_effects(writer, start, op)


def add_elementwise_effects(writer: RoleWriter, start: int, op: Elementwise) -> None:
    """Attach the effects of an elementwise operation to its code, which begins at `start`."""
    params: dict[str, float | int | str] = {"function": op.function}
    params |= {f"scalar{i}": value for i, value in enumerate(op.scalars)}
    part = (op.dst_col, op.dst_cols) if op.dst_cols else None
    add_effects(
        writer, start, "elementwise", list(op.sources), op.dst, op.source_cols, part, op.source_quarters, **params
    )


def target_registers(writer: RoleWriter, op: Elementwise) -> list[Operand]:
    """Registers of the destination, or of its columns that are written."""
    if not op.dst_cols:
        return writer.tile_registers(op.dst)
    return part_registers(writer, op.dst, op.dst_col, op.dst_cols)


def _steps(writer: RoleWriter, op: Elementwise) -> None:
    if op.function not in FP32_STEPS:
        raise unknown_name("function", op.function, (*FP32_STEPS, *CASTS), writer.where)
    packed = dtype_bytes(writer.layout(op.dst).tile.dtype) < REGISTER_BYTES
    sources = [source_registers(writer, op, i) for i in range(len(op.sources))]
    for index, dst in enumerate(target_registers(writer, op)):
        temporary = Operand(writer.value("t"))
        steps = FP32_STEPS[op.function]
        for number, (opcode, names) in enumerate(steps):
            src = [temporary if name == "t" else sources[int(name)][index] for name in names if _has(name, sources)]
            file = _file(opcode)
            # in place, as a compiler would, where no later step reads what stood in the destination
            free = file == "vector" and all(name == "t" for _, later in steps[number + 1 :] for name in later)
            target = dst if free else Operand(writer.value("t", file=file))
            writer.emit(PACKED_OPS.get(opcode, opcode) if packed else opcode, target, src)
            temporary = target


def _file(opcode: str) -> File:
    return "predicate" if opcode in PREDICATE_WRITERS else "vector"


def _has(name: str, sources: list[list[Operand]]) -> bool:
    return name == "t" or int(name) < len(sources)


def _cast(writer: RoleWriter, op: Elementwise) -> None:
    source, target = writer.layout(op.sources[0]).tile, writer.layout(op.dst).tile
    registers, targets = source_registers(writer, op, 0, same_size=False), target_registers(writer, op)
    if op.function == "cast":
        convert(writer, registers, targets, source.dtype, target.dtype)
        return
    if dtype_bytes(target.dtype) != 1 or len(targets) % 2:
        raise UserError(
            f"cast_regrouped makes pairs of registers of an 8-bit type; {op.dst} is {target.dtype}", where=writer.where
        )
    ratio = len(registers) // len(targets)
    for first in range(0, len(targets), 2):
        packed = [registers[first * ratio], registers[(first + 1) * ratio]]  # in place: the source ends here
        convert(writer, registers[first * ratio : (first + 2) * ratio], packed, source.dtype, target.dtype)
        for register in (targets[first + 1], targets[first]):  # the first may be where the first half stands
            writer.emit("PRMT", register, packed)


def _rotate(writer: RoleWriter, op: Elementwise) -> None:
    """Four operations for two neighbouring columns; a packed pair of cosine and sine is unpacked first."""
    targets, source = target_registers(writer, op), source_registers(writer, op, 0)
    packed = dtype_bytes(writer.layout(op.sources[1]).tile.dtype) < REGISTER_BYTES
    angles = source_registers(writer, op, 1, same_size=not packed)
    for i in range(0, len(targets), 2):
        if packed:
            cosine, sine = Operand(writer.value("cosine")), Operand(writer.value("sine"))
            writer.emit("HADD2", cosine, (angles[i // 2],))
            writer.emit("HADD2", sine, (angles[i // 2],))
        else:
            cosine, sine = angles[i], angles[i + 1]
        crossed = [Operand(writer.value("crossed")) for _ in range(2)]
        writer.emit("FMUL", crossed[0], (source[i + 1], sine))
        writer.emit("FMUL", crossed[1], (source[i], sine))
        writer.emit("FFMA", targets[i], (source[i], cosine, crossed[0]))
        writer.emit("FFMA", targets[i + 1], (source[i + 1], cosine, crossed[1]))


def convert(
    writer: RoleWriter, source: list[Operand], target: list[Operand], source_dtype: str, target_dtype: str
) -> None:
    """Conversions between registers: F2FP packs two; HADD2 and F2F unpack one; equal sizes move."""
    source_bytes, target_bytes = dtype_bytes(source_dtype), dtype_bytes(target_dtype)
    if source_bytes == target_bytes:
        for dst, src in zip(target, source, strict=True):
            writer.emit("MOV", dst, (src,))
    elif source_bytes > target_bytes:
        ratio = source_bytes // target_bytes
        for index, dst in enumerate(target):
            parts = source[index * ratio : (index + 1) * ratio]
            for pair in range(0, ratio, 2):
                partial = (dst,) if pair else ()
                writer.emit("F2FP", dst, (*parts[pair : pair + 2], *partial), dtype=target_dtype)
    else:
        ratio = target_bytes // source_bytes
        for index, dst in enumerate(target):
            writer.emit("HADD2" if ratio == 2 else "F2FP", dst, (source[index // ratio],))


def lower_mask(writer: RoleWriter, op: Mask) -> None:
    """The first and last column that each row keeps, then one comparison and one selection an element."""
    layout = writer.layout(op.dst)
    if dtype_bytes(layout.tile.dtype) != REGISTER_BYTES:
        raise UserError(
            f"masked tile {op.dst} is {layout.tile.dtype}; masks work on 32-bit elements", where=writer.where
        )
    start, registers = len(writer.code), writer.tile_registers(op.dst)
    corner = writer.scalar("IADD3", name="corner")
    if op.transposed:
        _mask_transposed(writer, op, registers, corner)
        add_mask_effects(writer, start, op)
        return
    rows = 1 if layout.kind == "lane" else 2  # rows that a lane holds of a band, or of 16 rows of the fragment layout
    last = [writer.scalar("IADD3", corner, name="last_column") for _ in range(rows * _row_blocks(layout))]
    for register, limit in zip(registers, _rows_in_turn(registers, last, layout), strict=True):
        outside = writer.scalar("ISETP", limit, name="outside")
        writer.emit("FSEL", register, (register, outside))
    add_mask_effects(writer, start, op)


def _mask_transposed(writer: RoleWriter, op: Mask, registers: list[Operand], corner: Operand) -> None:
    """Rows are keys: one beyond the limit is left out as a whole, so without a diagonal one comparison does for it."""
    layout = writer.layout(op.dst)
    if layout.kind not in ("fragment", "group"):
        raise UserError(f"a transposed mask is for matrix fragments, {op.dst} has none", where=writer.where)
    rows = range(2 * _row_blocks(layout))
    if not op.causal:
        beyond = [writer.scalar("ISETP", corner, name="beyond") for _ in rows]
        for register, outside in zip(registers, _rows_in_turn(registers, beyond, layout), strict=True):
            writer.emit("FSEL", register, (register, outside))
        return
    first = [writer.scalar("IADD3", corner, name="first_query") for _ in rows]
    if op.limit:
        beyond = [writer.scalar("ISETP", corner, name="beyond") for _ in rows]
        first = [writer.scalar("SEL", *pair, name="first_query") for pair in zip(first, beyond, strict=True)]
    for register, query in zip(registers, _rows_in_turn(registers, first, layout), strict=True):
        writer.emit("FSEL", register, (register, writer.scalar("ISETP", query, name="outside")))


def add_mask_effects(writer: RoleWriter, start: int, op: Mask) -> None:
    """Attach the effects of a mask to its code, which begins at `start`."""
    params: dict[str, float | int | str] = {"causal": int(op.causal), "limit": op.limit, "diagonal": op.diagonal}
    params |= {"row_divisor": op.row_divisor, "value": op.value}
    params |= {"transposed": 1} if op.transposed else {}
    params |= {"col_rank_step": op.warp_cols} if op.warp_cols else {}
    params |= _position(writer, "row", op.row) | _position(writer, "col", op.col)
    add_effects(writer, start, "mask", [], op.dst, (), None, (), **params)


def _row_blocks(layout: WarpLayout) -> int:
    """Groups of rows of a warp's part that a lane keeps apart: bands, or 16 rows of the fragment layout."""
    return layout.bands * (layout.rows // ATOM_ROWS if layout.kind == "fragment" else 1)


def _rows_in_turn(registers: list[Operand], rows: list[Operand], layout: WarpLayout) -> list[Operand]:
    """For each register the value that belongs to its row: two columns of row r, then two of row r + 8, ..."""
    if layout.kind == "lane":
        width = len(registers) // len(rows)
        return [rows[i // width] for i in range(len(registers))]
    width = 2 * len(registers) // len(rows)
    return [rows[2 * (i // width) + (i // 2) % 2] for i in range(len(registers))]


def _position(writer: RoleWriter, name: str, position: Position) -> dict[str, float | int | str]:
    if position.attribute is not None:
        writer.tables.item_values(position.attribute, writer.where)
    by_rank: dict[str, float | int | str] = {f"{name}_cta_step": position.cta_step} if position.cta_step else {}
    return by_rank | {
        f"{name}_attribute": position.attribute or "",
        f"{name}_level": writer.level(position.loop),
        f"{name}_step": position.step if position.loop else 0,
        f"{name}_constant": position.constant,
    }


def source_registers(writer: RoleWriter, op: Elementwise, index: int, same_size: bool = True) -> list[Operand]:
    """Registers of a source in the order of the destination's: a column part, or one column broadcast."""
    name = op.sources[index]
    layout, target = writer.layout(name), writer.layout(op.dst)
    row_vector = layout.kind == "vector" or (layout.kind == "rows" and layout.tile.rows == 1 and layout.cols > 1)
    if row_vector and target.tile.rows > 1:
        part = part_registers(writer, name, op.source_cols[index] if op.source_cols else 0, op.dst_cols or target.cols)
        return part * target.bands
    if layout.kind == "columns":
        return _along_columns(writer, op, index)
    if layout.cols == 1 and target.cols > 1:
        return _read_at(_broadcast(writer, name, op), op.quarter(index))
    first = op.source_cols[index] if op.source_cols else 0
    registers = _read_at(part_registers(writer, name, first, op.dst_cols or target.tile.cols), op.quarter(index))
    if same_size and len(registers) != len(target_registers(writer, op)):
        raise UserError(
            f"{op.function}: {name} and {op.dst} have different layouts "
            f"({layout.tile.rows} x {layout.tile.cols} {layout.tile.dtype}, "
            f"{target.tile.rows} x {target.tile.cols} {target.tile.dtype})",
            where=writer.where,
        )
    return registers


def _read_at(registers: list[Operand], quarter: int | None) -> list[Operand]:
    """The same registers of the subpartition in which a quarter lies."""
    return registers if quarter is None else [replace(register, place=quarter) for register in registers]


def part_registers(writer: RoleWriter, name: str, first_col: int, cols: int) -> list[Operand]:
    """Registers of columns [first_col, first_col + cols) of a tile, band by band."""
    layout = writer.layout(name)
    if first_col == 0 and cols == layout.tile.cols:
        return writer.tile_registers(name)
    size = dtype_bytes(layout.tile.dtype)
    units = {"lane": max(2, REGISTER_BYTES // size), "rows": layout.block_cols}  # pairs of a row, blocks
    unit = units.get(layout.kind, 8)  # whole atoms
    if layout.tile.warp_grid[1] > 1 or first_col % unit or cols % unit or first_col + cols > layout.tile.cols:
        raise UserError(
            f"columns {first_col} to {first_col + cols} of register tile {name} ({layout.tile.cols} columns) "
            "cannot be taken",
            where=writer.where,
            hint=f"a part must be a multiple of {unit} columns inside a tile whose warp grid has one column",
        )
    registers = writer.tile_registers(name)
    blocks = layout.rows // 16 if layout.kind == "fragment" else 1
    row = len(registers) // (layout.bands * blocks)  # registers of one row of atoms (or lane)
    begin, end = row * first_col // layout.cols, row * (first_col + cols) // layout.cols
    return [r for start in range(0, len(registers), row) for r in registers[start + begin : start + end]]


def _along_columns(writer: RoleWriter, op: Elementwise, index: int) -> list[Operand]:
    """A vector's registers for each register of the destination: of an atom a lane has two columns in two rows."""
    target = writer.layout(op.dst)
    if target.kind not in ("fragment", "group") or dtype_bytes(target.tile.dtype) != REGISTER_BYTES:
        raise UserError(
            f"{op.sources[index]} lies beside fragments of 32-bit elements; {op.dst} is {target.tile.dtype}, "
            f"layout {target.kind}",
            where=writer.where,
        )
    first = (op.source_cols[index] if op.source_cols else 0) // ATOM_COLS * ATOM_LANE_COLS
    vector = _read_at(writer.tile_registers(op.sources[index])[first:], op.quarter(index))
    width = (op.dst_cols or target.cols) // ATOM_COLS * ATOM_LANE_COLS * 2  # registers of one row of atoms
    places = [i % width for i in range(len(target_registers(writer, op)))]
    return [vector[place // (2 * ATOM_LANE_COLS) * ATOM_LANE_COLS + place % ATOM_LANE_COLS] for place in places]


def _broadcast(writer: RoleWriter, name: str, op: Elementwise) -> list[Operand]:
    """A column tile's registers repeated over the columns of the destination: atoms hold rows r and r + 8 in turn."""
    column, target = writer.tile_registers(name), writer.layout(op.dst)
    registers = target_registers(writer, op)
    if target.kind in ("lane", "rows"):
        row = len(registers) // target.bands
        return [column[i // row] for i in range(len(registers))]
    row = len(registers) // (len(column) // 2)
    half = max(1, REGISTER_BYTES // dtype_bytes(target.tile.dtype))
    pair = 2 // half  # registers of one row of an atom: two fp32, one packed
    return [column[2 * (i // row) + (i // max(1, pair)) % 2] for i in range(len(registers))]


def sharing_lanes(layout: WarpLayout) -> int:
    """Return how many lanes have a part of a row, or copies of it where the tile has one column."""
    return SHARING_LANES.get(layout.kind, layout.tile.row_lanes)


def lower_row_reduce(writer: RoleWriter, op: RowReduce) -> None:
    """A chain over the columns of each row, then two shuffles where four lanes share a row and are to agree."""
    opcode = {"max": "FMNMX", "sum": "FADD"}.get(op.function)
    if opcode is None:
        raise unknown_name("row reduction", op.function, ("max", "sum"), writer.where)
    column = writer.tile_registers(op.dst)
    start, layout = len(writer.code), writer.layout(op.src)
    shuffles = sharing_lanes(layout).bit_length() - 1 if op.across_lanes else 0
    rows = _rows_of(writer, op, len(column))
    for register, parts in zip(column, rows, strict=True):
        chain = [register, *parts] if op.accumulate else list(parts)
        steps: list[Operand | None] = [*chain[1:], *[None] * shuffles]
        total = chain[0]
        for number, part in enumerate(steps):
            if part is None:
                part = Operand(writer.value("other"))
                writer.emit("SHFL", part, (total,))
            result = register if number == len(steps) - 1 else Operand(writer.value("reduced"))
            writer.emit(opcode, result, (total, part))
            total = result
        if not steps:
            writer.emit("MOV", register, (total,))
    add_row_reduce_effects(writer, start, op)


def add_row_reduce_effects(writer: RoleWriter, start: int, op: RowReduce) -> None:
    """Attach the effects of a row reduction to its code, which begins at `start`."""
    columns = (op.src_col, op.src_cols) if op.src_cols else ()
    accumulate = int(op.accumulate)
    add_effects(writer, start, "row_reduce", [op.src], op.dst, columns, function=op.function, accumulate=accumulate)


def _rows_of(writer: RoleWriter, op: RowReduce, rows: int) -> list[list[Operand]]:
    layout = writer.layout(op.src)
    registers = part_registers(writer, op.src, op.src_col, op.src_cols or layout.tile.cols)
    if layout.kind in ("lane", "rows") or layout.tile.cols == 1:
        size = len(registers) // rows
        return [registers[i * size : (i + 1) * size] for i in range(rows)]
    size = len(registers) // (rows // 2)
    groups = [registers[i * size : (i + 1) * size] for i in range(rows // 2)]
    return [[r for i, r in enumerate(group) if (i // 2) % 2 == half] for group in groups for half in range(2)]


def add_effects(
    writer: RoleWriter,
    start: int,
    kind: str,
    sources: list[str],
    dst: str,
    columns: tuple[int, ...] = (),
    part: tuple[int, int] | None = None,
    quarters: Sequence[int] = (),
    **params: float | int | str,
) -> None:
    """Attach one effect a band to the last of its instructions (code from `start` on is in the order of bands).

    `columns`: of an elementwise operation the first column of each source, of a row reduction first and number of
    columns of its source. `part`: first column and columns of the destination that are written. `quarters`: of each
    source, the subpartition whose rows every weft reads.
    """
    target = writer.layout(dst)
    first, width = part or (0, target.cols)
    count = len(writer.code) - start
    for band in range(target.bands):
        reads = []
        for index, name in enumerate(sources):
            access = writer.tile_band(name, band if writer.layout(name).bands > 1 else 0)
            if quarters and quarters[index] != OWN_ROWS:
                row, col = (quarters[index] * step for step in (access.rank_row, access.rank_col))
                access = replace(access, row=access.row + row, col=access.col + col, rank_row=0, rank_col=0)
            if kind == "elementwise" and access.cols > 1:
                column = columns[index] if columns else 0
                access = replace(access, col=access.col + column, cols=min(access.cols, width))
            elif kind in ("row_reduce", "gate") and columns:
                access = replace(access, col=access.col + columns[0], cols=columns[1])
            reads.append(access)
        written = writer.tile_band(dst, band)
        if part:
            written = replace(written, col=written.col + first, cols=width)
        effect = writer.effect(kind, reads, [written], **params)
        position = start + (band + 1) * count // target.bands - 1
        draft = writer.code[position]
        writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))
