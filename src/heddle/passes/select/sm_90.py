"""Hopper: wgmma chains by warp groups, operands described in uniform registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Mma, MmaCommit, MmaWait, SharedRef, TmemRef
from heddle.ir.warp import Access
from heddle.passes.draft import PSEUDO, Draft, Operand, whole
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select.writer import RoleWriter

STEP_BYTES = 32  # k extent of one wgmma (PTX ISA: 16 x 16 bit, 32 x 8 bit)
GROUP_ROWS = 64  # m of a wgmma
BAND_ROWS = 16  # rows of one of its four warps
MAX_COLS = 256  # largest n
# what a compiler emits to build a descriptor from an address in a vector register (docs/explanation/passes.md)
COMPUTED_DESCRIPTOR = ("LEA", "LOP3", "R2UR", "USHF", "ULOP3", "ULOP3", "UMOV")


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """WARPGROUP.ARRIVE if the chain begins here, then one HGMMA for each k-step and band of 64 rows a group."""
    layout, steps, k = _check(writer, op)
    assert isinstance(op.acc, str)
    accumulators = writer.tile_values(op.acc)
    if not writer.arrived:
        writer.emit("WARPGROUP.ARRIVE")
        writer.arrived = True
    first = [writer.scalar("UISETP", name="accumulate")] if op.accumulate == "first_iteration" else []
    bases = _descriptor_bases(writer, op)
    tile_dtype = writer.shared_tile(op.b.tile).dtype
    for step in range(steps):
        for band in range(layout.bands):
            descriptors = _descriptors(writer, bases, step, band)
            fragment = _fragment(writer, op, band, step, steps)
            overwrites = op.accumulate is False and step == 0
            writer.emit(
                "QGMMA" if dtype_bytes(tile_dtype) == 1 else "HGMMA",
                accumulators[band],
                (*fragment, *descriptors, *(first if step == 0 else [])),
                accumulates=not overwrites,
                shape=(GROUP_ROWS, op.columns, k),
                form="rs" if isinstance(op.a, str) else "ss",
                dtype=tile_dtype,
                effect=_effect(writer, op, layout, band, step, k),
            )


def _check(writer: RoleWriter, op: Mma) -> tuple[WarpLayout, int, int]:
    if not isinstance(op.acc, str):
        raise UserError("wgmma accumulates in registers; the accumulator is a tensor-memory tile", where=writer.where)
    layout = writer.layout(op.acc)
    if layout.kind != "group":
        raise UserError(
            f"accumulator {op.acc} has warp grid {layout.tile.warp_grid}; wgmma needs (4 n, 1)", where=writer.where
        )
    if writer.first_warp % 4:
        raise UserError(
            f"role {writer.role.name} begins at warp {writer.first_warp}; wgmma needs whole warp groups "
            "(a multiple of 4)",
            where=writer.where,
        )
    k = STEP_BYTES // dtype_bytes(writer.shared_tile(op.b.tile).dtype)
    depth = op.depth
    a_shape = _a_shape(writer, op.a)
    a_shape = a_shape[::-1] if op.a_transposed else a_shape
    if a_shape != (layout.tile.rows, depth) or op.columns != layout.tile.cols or depth % k:
        raise UserError(
            f"mma of a {a_shape[0]} x {a_shape[1]} and b {op.columns} x {depth} into "
            f"{layout.tile.rows} x {layout.tile.cols}: needs a [m, k], b [n, k] and k a multiple of {k}",
            where=writer.where,
        )
    if op.columns > MAX_COLS or op.columns % 8:
        raise UserError(f"wgmma needs n in 8..{MAX_COLS} in steps of 8, not {op.columns}", where=writer.where)
    return layout, depth // k, k


def _a_shape(writer: RoleWriter, a: SharedRef | TmemRef | str) -> tuple[int, int]:
    if not isinstance(a, str):
        return a.rows, a.cols
    tile = writer.layout(a).tile
    return tile.rows, tile.cols


def _descriptor_bases(writer: RoleWriter, op: Mma) -> list[tuple[str, Operand]]:
    """Low words of the descriptors at the current stage: base + stage * tile size, in units of 16 bytes."""
    bases = []
    for ref in (op.a, op.b):
        if isinstance(ref, SharedRef):
            base = writer.kept(f"{ref.tile}.descriptor")
            at_stage = writer.scalar("ULEA", base, writer.stage(ref.ring), name="descriptor") if ref.ring else base
            bases.append((ref.tile, at_stage))
    return bases


def _descriptors(writer: RoleWriter, bases: list[tuple[str, Operand]], step: int, band: int) -> list[Operand]:
    """Descriptor registers of one HGMMA: low word advanced by one add; the high word is constant."""
    result = []
    for tile, base in bases:
        if writer.hoisted_descriptors:
            low = writer.scalar("UIADD3", base, name="descriptor") if step or band else base
        else:
            low = _computed_descriptor(writer, base)
        high = writer.scalar("UMOV", name="descriptor_high") if step == 0 and band == 0 else None
        result += [low, writer.kept(f"{tile}.descriptor_high") if high is None else high]
    return result


def _computed_descriptor(writer: RoleWriter, base: Operand) -> Operand:
    last = base
    for op in COMPUTED_DESCRIPTOR:
        last = writer.scalar(op, *([last] if last.value.file == "uniform" or op in ("LOP3", "R2UR") else []))
    return last


def _fragment(writer: RoleWriter, op: Mma, band: int, step: int, steps: int) -> tuple[Operand, ...]:
    """Registers of an A operand that is held in registers."""
    if not isinstance(op.a, str):
        return ()
    value = writer.tile_values(op.a)[band]
    if step == 0:
        writer.matrix_sources.append((value, len(writer.code)))
    size = writer.layout(op.a).band_registers // steps
    return (Operand(value, step * size, size),)


def _effect(writer: RoleWriter, op: Mma, layout: WarpLayout, band: int, step: int, k: int) -> int:
    b = b_access(writer, op, step, k)
    a = _a_access(writer, op, layout, band, step, k)
    mode: dict[str, float | int | str] = {"accumulate": 1}
    if step == 0 and op.accumulate == "first_iteration":
        mode = {"accumulate": 2, "level": writer.level(op.loop)}
    elif step == 0 and op.accumulate is False:
        mode = {"accumulate": 0}
    if op.b_transposed:
        mode["transposed"] = 1
    if op.a_transposed:
        mode["a_transposed"] = 1
    assert isinstance(op.acc, str)
    return writer.effect("mma", [a, b], [writer.tile_band(op.acc, band)], **mode)


def b_access(writer: RoleWriter, op: Mma, step: int, k: int) -> Access:
    """What one k-step reads of the second operand."""
    assert isinstance(op.b, SharedRef)
    b = writer.shared_access(op.b)
    if op.b_transposed:
        return replace(b, row=b.row + step * k, rows=k)
    return replace(b, col=b.col + step * k, cols=k)


def _a_access(writer: RoleWriter, op: Mma, layout: WarpLayout, band: int, step: int, k: int) -> Access:
    a = op.a
    if isinstance(a, SharedRef):
        access = writer.shared_access(a)
        if op.a_transposed:
            row, col = access.row + step * k, access.col + band * layout.row_step
            return replace(access, row=row, rows=k, col=col, cols=BAND_ROWS, rank_col=BAND_ROWS, rank_cols=layout.warps)
        row = access.row + band * layout.row_step
        return replace(access, row=row, col=access.col + step * k, rows=BAND_ROWS, cols=k, rank_row=BAND_ROWS)
    assert isinstance(a, str)
    return replace(writer.tile_band(a, band), col=step * k, cols=k)


def lower_mma_commit(writer: RoleWriter, op: MmaCommit) -> None:
    """Close a wgmma group."""
    if op.barrier is not None:
        raise UserError("wgmma groups are waited for, not committed to an mbarrier", where=writer.where)
    writer.emit("WARPGROUP.COMMIT")
    writer.arrived = False


def lower_mma_wait(writer: RoleWriter, op: MmaWait) -> None:
    """Wait for all but the youngest groups."""
    # operands in registers are read until here: they stay allocated, whatever iteration their group belongs to
    sources = {value.id: value for value, _ in writer.matrix_sources}
    writer.emit("WARPGROUP.DEPBAR", pending=op.pending, after=[whole(value) for value in sources.values()])
    writer.arrived = False
    if op.pending == 0:  # this wait follows whenever such an instruction has been issued: no other one has to
        writer.matrix_sources = [entry for entry in writer.matrix_sources if not _straight(writer.code[entry[1] :])]


def _straight(code: Sequence[Draft]) -> bool:
    """Whether code has no label and no branch but those to the retry of a wait."""
    return not any(draft.op in PSEUDO or draft.row.target is not None or draft.target for draft in code)
