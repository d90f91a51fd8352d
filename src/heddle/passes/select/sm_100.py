"""Blackwell: tcgen05.mma issued by one warp, accumulators in tensor memory."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Mma, MmaCommit, SharedRef, TensorMemoryTile, TmemRef
from heddle.ir.warp import Access
from heddle.passes.draft import Operand
from heddle.passes.select.sm_90 import b_access
from heddle.passes.select.synchronisation import barrier_address
from heddle.passes.select.writer import RoleWriter

STEP_BYTES = 32  # k extent of one tcgen05.mma (PTX ISA: 16 x 16 bit, 32 x 8 bit)
ROWS = (64, 128)  # rows of one CTA
MAX_COLS = 256  # largest n


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """One UTCHMMA for each k-step: descriptors, and the address of an A in tensor memory, advanced by one add each."""
    rows, cols, k = _check(writer, op)
    assert isinstance(op.acc, TmemRef)
    assert isinstance(op.a, SharedRef | TmemRef)
    first = [writer.scalar("UISETP", name="accumulate")] if op.accumulate == "first_iteration" else []
    accumulator = tmem_address(writer, op.acc)
    assert isinstance(op.b, SharedRef)
    bases = [_base(writer, op.a) if isinstance(op.a, SharedRef) else tmem_address(writer, op.a), _base(writer, op.b)]
    dtype = writer.shared_tile(op.b.tile).dtype
    for step in range(op.depth // k):
        lows = [writer.scalar("UIADD3", base, name="descriptor") if step else base for base in bases]
        high = writer.scalar("UMOV", name="descriptor_high")
        writer.emit(
            "UTCQMMA" if dtype_bytes(dtype) == 1 else "UTCHMMA",
            src=(*lows, high, accumulator, *(first if step == 0 else [])),
            shape=(rows, cols, k),
            form="ss" if isinstance(op.a, SharedRef) else "ts",
            dtype=dtype,
            ctas=op.ctas,
            by="role",
            effect=_effect(writer, op, op.acc, op.a, step, k),
        )


def _check(writer: RoleWriter, op: Mma) -> tuple[int, int, int]:
    """Rows and columns of the instruction (both CTAs of a pair together) and its k extent."""
    if not isinstance(op.acc, TmemRef):
        raise UserError("tcgen05 accumulates in tensor memory; the accumulator is a register tile", where=writer.where)
    if isinstance(op.a, str):
        raise UserError(
            "the A operand of tcgen05.mma is a register tile; it must be in shared or tensor memory",
            where=writer.where,
            hint="store the registers to tensor memory first",
        )
    tmem_tile(writer, op.acc.tile)
    k = STEP_BYTES // dtype_bytes(writer.shared_tile(op.b.tile).dtype)
    cols = op.columns * op.ctas
    rows, depth = (op.a.cols, op.a.rows) if op.a_transposed else (op.a.rows, op.a.cols)
    if rows not in ROWS or cols > MAX_COLS or cols % 16:
        raise UserError(
            f"tcgen05.mma of {rows} rows a CTA and n = {cols}: "
            f"rows must be 64 or 128, n a multiple of 16 up to {MAX_COLS}",
            where=writer.where,
        )
    if (op.acc.rows, op.acc.cols) != op.accumulator(rows) or depth != op.depth or op.depth % k:
        raise UserError(
            f"mma of a {rows} x {depth} and b {op.columns} x {op.depth} ({op.ctas} CTAs) into "
            f"{op.acc.rows} x {op.acc.cols}: needs a [m, k], b [n / CTAs, k], k a multiple of {k}",
            where=writer.where,
        )
    return rows * op.ctas, cols, k


def tmem_tile(writer: RoleWriter, name: str) -> TensorMemoryTile:
    """The tensor-memory tile called `name`."""
    for tile in writer.program.tensor_memory:
        if tile.name == name:
            return tile
    raise unknown_name("tensor-memory tile", name, (t.name for t in writer.program.tensor_memory), writer.where)


def tmem_address(writer: RoleWriter, ref: TmemRef) -> Operand:
    """The address of the stage of a tensor-memory tile that a box lies in."""
    address = writer.kept(f"{ref.tile}.tmem")
    return writer.scalar("ULEA", address, writer.stage(ref.ring), name="tmem") if ref.ring else address


def _base(writer: RoleWriter, ref: SharedRef) -> Operand:
    base = writer.kept(f"{ref.tile}.descriptor")
    return writer.scalar("ULEA", base, writer.stage(ref.ring), name="descriptor") if ref.ring else base


def _effect(writer: RoleWriter, op: Mma, acc: TmemRef, a: SharedRef | TmemRef, step: int, k: int) -> int:
    mode: dict[str, float | int | str] = {"accumulate": 1}
    if step == 0 and op.accumulate == "first_iteration":
        mode = {"accumulate": 2, "level": writer.level(op.loop)}
    elif step == 0 and op.accumulate is False:
        mode = {"accumulate": 0}
    if op.ctas > 1:
        mode["ctas"] = op.ctas
    if acc.cols != op.columns * op.ctas:
        mode["folded"] = 1
    if op.b_transposed:
        mode["transposed"] = 1
    if op.a_transposed:
        mode["a_transposed"] = 1
    operand = writer.shared_access(a) if isinstance(a, SharedRef) else writer.tmem_access(a)
    reads = [_k_slice(operand, step, k, op.a_transposed), b_access(writer, op, step, k)]
    return writer.effect("mma", reads, [writer.tmem_access(acc)], **mode)


def _k_slice(access: Access, step: int, k: int, transposed: bool) -> Access:
    if transposed:  # through the descriptor: rows of the box lie along the sum
        return replace(access, row=access.row + step * k, rows=k)
    return replace(access, col=access.col + step * k, cols=k)


def lower_mma_commit(writer: RoleWriter, op: MmaCommit) -> None:
    """Arrive on an mbarrier when the matrix instructions so far are complete."""
    if op.barrier is None:
        raise UserError("tcgen05.commit needs an mbarrier", where=writer.where)
    reference = writer.barrier(op.barrier)
    writer.emit("UTCBAR", src=(barrier_address(writer, op.barrier),), barrier=reference, by="role")
