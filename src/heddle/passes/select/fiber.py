"""Mode fiber: the number of fibers, marks of full and empty, and arrivals after what was read from shared memory."""

from __future__ import annotations

from heddle.ir.tile import Arrive, SetBusyBit, SetFiberNum
from heddle.ir.warp import Instruction
from heddle.passes.draft import BUSY_BIT, Draft, whole
from heddle.passes.select.synchronisation import barrier_address
from heddle.passes.select.writer import RoleWriter


def lower_set_fiber_num(writer: RoleWriter, op: SetFiberNum) -> None:
    """SETFIBER with the ALL scope: every channel of the pool starts empty (protocols: a start at E = 1, F = 0)."""
    writer.emit("SETFIBER", fibers=op.fibers, all_scope=True)


def lower_set_busy_bit(writer: RoleWriter, op: SetBusyBit) -> None:
    """A mark on the tensor's registers, which `insert_busy_bits` turns into binds of the accesses before it."""
    source = writer.tables.source(writer.where, writer.operation)
    row = Instruction(op=BUSY_BIT, bit=op.bit, source=source)
    writer.code.append(Draft(row=row, src=tuple(whole(value) for value in writer.tile_values(op.tile))))


def lower_arrive(writer: RoleWriter, op: Arrive) -> None:
    """One arrival, once everything that this role has started to read from shared memory has been read.

    What reads shared memory after this line in a loop counts as read by the next arrival, not by this one.
    """
    reference = writer.barrier(op.barrier)
    address = barrier_address(writer, op.barrier)
    writer.emit(
        "SYNCS.ARRIVE",
        src=(address,),
        after=writer.shared_reads,
        after_read=writer.matrix_reads,
        barrier=reference,
        by=op.by,
    )
