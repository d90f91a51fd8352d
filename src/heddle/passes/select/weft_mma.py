"""Hopper in mode fiber: weft-level matrix instructions in lockstep groups, and fragments loaded by ldmatrix."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import LoadShared, Mma, SharedRef
from heddle.ir.warp import Access
from heddle.passes.draft import ZERO, Operand, Value, whole
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select import accesses, loads
from heddle.passes.select.sm_90 import BAND_ROWS, MAX_COLS, STEP_BYTES, b_access
from heddle.passes.select.writer import RoleWriter

GROUP_WEFTS = 4  # wefts of a lockstep group, one a subpartition
FRAGMENT_REGISTERS = 4  # of a 16-row A operand of one k-step: 16 x 32 bytes over 32 lanes
FRAGMENT_BYTES = BAND_ROWS * STEP_BYTES
NOTHING = whole(ZERO)


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """One WMMA a k-step and band of 64 rows. With `plus` the last step adds to it and writes the destination."""
    layout, steps, k = _check(writer, op)
    assert isinstance(op.acc, str)
    chain, target = op.plus or op.acc, op.acc
    dtype = writer.shared_tile(op.b.tile).dtype
    for step in range(steps):
        name = target if step == steps - 1 else chain
        for band in range(layout.bands):
            added = _added(writer, op, step, chain, name, band)
            writer.emit(
                "WMMA",
                writer.tile_values(name)[band],
                (_fragment(writer, op, band, step), NOTHING, *added),
                accumulates=not added,
                shape=(BAND_ROWS, op.columns, k),
                form="rs" if isinstance(op.a, str) else "ss",
                dtype=dtype,
                group=True,
                effect=_effect(writer, op, layout, band, step, k),
            )
            if step == steps - 1:
                writer.matrix_reads.append(_fragment(writer, op, band, step))  # the unit reads in order: the last one


def _check(writer: RoleWriter, op: Mma) -> tuple[WarpLayout, int, int]:
    if not isinstance(op.acc, str):
        raise UserError("the accumulator of a weft-level product is in registers here", where=writer.where)
    layout = writer.layout(op.acc)
    if layout.kind != "group" or layout.warps != GROUP_WEFTS or writer.first_warp % GROUP_WEFTS:
        raise UserError(
            f"role {writer.role.name} multiplies with {layout.warps} wefts from {writer.first_warp} on; "
            f"a lockstep group is {GROUP_WEFTS} wefts from a multiple of {GROUP_WEFTS} on",
            where=writer.where,
        )
    k = STEP_BYTES // dtype_bytes(writer.shared_tile(op.b.tile).dtype)
    if op.depth % k or op.columns % 8 or op.columns > MAX_COLS:
        raise UserError(
            f"a product over {op.depth} with {op.columns} columns; needs a multiple of {k}, and 8 to {MAX_COLS}",
            where=writer.where,
        )
    if op.plus is not None and op.accumulate == "first_iteration":
        raise UserError("a product with `plus` adds to it; it has no first iteration of its own", where=writer.where)
    return layout, op.depth // k, k


def _added(writer: RoleWriter, op: Mma, step: int, chain: str, name: str, band: int) -> tuple[Operand, ...]:
    """The accumulator that is read, where it is not the destination: none (RZ), or that of the chain."""
    if op.accumulate is False and step == 0:
        return (NOTHING,)
    return () if chain == name else (whole(writer.tile_values(chain)[band]),)


def _fragment(writer: RoleWriter, op: Mma, band: int, step: int) -> Operand:
    if not isinstance(op.a, str):
        return NOTHING
    value = writer.tile_values(op.a)[band]
    return Operand(value, step * FRAGMENT_REGISTERS, FRAGMENT_REGISTERS)


def _effect(writer: RoleWriter, op: Mma, layout: WarpLayout, band: int, step: int, k: int) -> int:
    assert isinstance(op.acc, str)
    reads = [_a_access(writer, op.a, layout, band, step, k), b_access(writer, op, step, k)]
    mode: dict[str, float | int | str] = {"accumulate": 1}
    if step == 0 and op.accumulate == "first_iteration":
        mode = {"accumulate": 2, "level": writer.level(op.loop)}
    elif step == 0 and op.accumulate is False:
        mode = {"accumulate": 0}
    if op.b_transposed:
        mode["transposed"] = 1
    last = step == op.depth // k - 1
    if op.plus is not None and last:
        reads.append(writer.tile_band(op.plus, band))
    written = op.acc if last or op.plus is None else op.plus
    return writer.effect("mma", reads, [writer.tile_band(written, band)], **mode)


def _a_access(writer: RoleWriter, a: object, layout: WarpLayout, band: int, step: int, k: int) -> Access:
    if isinstance(a, SharedRef):
        access = writer.shared_access(a)
        row = access.row + band * layout.row_step
        return replace(access, row=row, col=access.col + step * k, rows=BAND_ROWS, cols=k, rank_row=BAND_ROWS)
    assert isinstance(a, str)
    return replace(writer.tile_band(a, band), col=step * k, cols=k)


def lower_load_shared(writer: RoleWriter, op: LoadShared) -> None:
    """Fragments of a matrix operand by LDSM, one a k-step; other tiles by plain loads."""
    tile, layout = writer.shared_tile(op.src.tile), writer.layout(op.dst)
    size = dtype_bytes(tile.dtype)
    if layout.kind != "group" or layout.tile.dtype != tile.dtype or size != 2 or op.src.cols * size % STEP_BYTES:
        loads.lower_load_shared(writer, op)
        writer.shared_reads += [whole(value) for value in writer.tile_values(op.dst)]
        return
    base = accesses.shared_base(writer, op.src)
    for band, value in enumerate(writer.tile_values(op.dst)):
        _load_band(writer, op, layout, band, value, base)
        writer.shared_reads.append(whole(value))


def _load_band(writer: RoleWriter, op: LoadShared, layout: WarpLayout, band: int, value: Value, base: Operand) -> None:
    box = writer.shared_access(op.src)
    place = layout.band(band, writer.tile_object(op.dst))
    k = STEP_BYTES // dtype_bytes(layout.tile.dtype)
    for step in range(op.src.cols // k):
        address = writer.scalar("LOP3", base, name="address") if step else base  # the swizzle, by exclusive or
        read = replace(box, row=box.row + place.row, rows=BAND_ROWS, rank_row=BAND_ROWS, col=box.col + step * k, cols=k)
        writer.emit(
            "LDSM",
            Operand(value, step * FRAGMENT_REGISTERS, FRAGMENT_REGISTERS),
            (address,),
            bytes=FRAGMENT_BYTES,
            effect=writer.effect("copy", [read], [replace(place, col=step * k, cols=k)]),
        )
