"""Mode fiber: the number of fibers, marks of full and empty, and arrivals after what was read from shared memory."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Arrive, Mma, SetBusyBit, SetFiberNum, TakeToken
from heddle.ir.tile_walk import Place, home_subpartitions, walk_body
from heddle.ir.warp import Instruction
from heddle.passes.draft import BUSY_BIT, Draft, Operand, whole
from heddle.passes.select.sm_90 import STEP_BYTES
from heddle.passes.select.synchronisation import barrier_address
from heddle.passes.select.writer import RoleWriter


def lower_set_fiber_num(writer: RoleWriter, op: SetFiberNum) -> None:
    """SETFIBER with the ALL scope: every channel of the pool starts empty (protocols: a start at E = 1, F = 0)."""
    writer.emit("SETFIBER", fibers=op.fibers, all_scope=True)


def lower_set_busy_bit(writer: RoleWriter, op: SetBusyBit) -> None:
    """A mark on the tensor's registers, which `insert_busy_bits` turns into binds of the accesses before it.

    Who reads a tensor in all subpartitions gives it back in all of them.
    """
    assert isinstance(op.tile, str)
    spread = op.bit == "empty" and writer.layout(op.tile).tile.read_by == "all"
    places = home_subpartitions(writer.program, op.tile) if spread else (None,)
    registers = (replace(whole(value), place=place) for value in writer.tile_values(op.tile) for place in places)
    row = Instruction(op=BUSY_BIT, bit=op.bit, source=writer.tables.source(writer.where, writer.operation))
    writer.code.append(Draft(row=row, src=tuple(registers)))


def lower_take_token(writer: RoleWriter, op: TakeToken) -> None:
    """One move that goes nowhere; its read gives the token back."""
    registers = writer.tile_registers(op.tile)
    writer.emit("MOV", src=registers)
    source = writer.tables.source(writer.where, writer.operation)
    row = Instruction(op=BUSY_BIT, bit="empty", source=source)
    writer.code.append(Draft(row=row, src=tuple(registers)))


def lower_arrive(writer: RoleWriter, op: Arrive) -> None:
    """One arrival, once everything that this role has started to read from shared memory has been read.

    What reads shared memory after this line in a loop counts as read by the next arrival, not by this one; with `read`
    the arrival is after all products so far that have this first operand, in earlier iterations, too.
    """
    reference = writer.barrier(op.barrier)
    address = barrier_address(writer, op.barrier)
    writer.emit(
        "SYNCS.ARRIVE",
        src=(address,),
        after=writer.shared_reads if op.read is None else (),
        after_read=writer.matrix_reads if op.read is None else _last_fragments(writer, op.read),
        barrier=reference,
        by=op.by,
    )


def lower_phased_arrive(writer: RoleWriter, op: Arrive) -> None:
    """One arrival, once what this role has written to the pool is there (without bits, the barrier says so)."""
    reference = writer.barrier(op.barrier)
    address = barrier_address(writer, op.barrier)
    written = {operand.value: None for draft in writer.code for operand in draft.dst if operand.value.file == "pool"}
    writer.emit("SYNCS.ARRIVE", src=(address,), after=map(whole, written), barrier=reference, by=op.by)


def _last_fragments(writer: RoleWriter, tile: str) -> list[Operand]:
    """What the last step of the products with this first operand reads of it: the unit reads in order."""
    products = [op for op, _ in walk_body(writer.role.body, Place(writer.role)) if isinstance(op, Mma) and op.a == tile]
    if not products:
        raise UserError(
            f"an arrival after the reads of products with first operand {tile!r}; role {writer.role.name} has none",
            where=writer.where,
        )
    found: dict[Operand, None] = {}
    for product in products:
        steps = product.depth * dtype_bytes(writer.shared_tile(product.b.tile).dtype) // STEP_BYTES
        for value in writer.tile_values(tile):
            size = value.count // steps
            found[Operand(value, value.count - size, size)] = None
    return list(found)
