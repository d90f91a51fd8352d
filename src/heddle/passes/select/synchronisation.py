"""Barriers of all kinds, fences and global semaphores."""

from __future__ import annotations

from heddle.ir.tile import (
    Arrive,
    Await,
    BarrierUse,
    ClusterSync,
    CpAsyncCommit,
    CpAsyncWait,
    Expect,
    Fence,
    Signal,
    Sync,
    Wait,
)
from heddle.passes.draft import Operand
from heddle.passes.select.writer import RoleWriter


def barrier_address(writer: RoleWriter, use: BarrierUse) -> Operand:
    """The address of an mbarrier: base + 8 * stage; one more operation for another CTA's window."""
    base = writer.kept(f"{use.name}.address")
    address = writer.scalar("ULEA", base, writer.stage(use.ring), name="mbarrier") if use.ring else base
    return address if use.cta == "own" else writer.scalar("UIADD3", address, name="remote")


def lower_wait(writer: RoleWriter, op: Wait) -> None:
    """Parity to bit 31, try-wait, and the branch to the retry loop, which is not taken once the warp may pass."""
    reference = writer.barrier(op.barrier)
    address = barrier_address(writer, op.barrier)
    parity = [writer.scalar("USHF", writer.phase(op.barrier.ring), name="parity")] if op.barrier.ring else []
    done = Operand(writer.value("done", file="predicate"))
    writer.emit("SYNCS.TRYWAIT", done, (address, *parity), barrier=reference)
    writer.emit("BRA", src=(done,))


def lower_arrive(writer: RoleWriter, op: Arrive) -> None:
    """One arrival, by one lane of the chosen warps, or by the matrix unit for the warps of a group together."""
    reference = writer.barrier(op.barrier)
    if op.after_reads:
        writer.emit("WARPGROUP.SIGNAL", src=(barrier_address(writer, op.barrier),), barrier=reference)
        return
    writer.emit("SYNCS.ARRIVE", src=(barrier_address(writer, op.barrier),), barrier=reference, by=op.by)


def lower_expect(writer: RoleWriter, op: Expect) -> None:
    """One arrival and the bytes that bulk copies will bring."""
    reference = writer.barrier(op.barrier)
    address = barrier_address(writer, op.barrier)
    amount = writer.scalar("UMOV", name="bytes")
    writer.emit("SYNCS.EXPECT", src=(address, amount), barrier=reference, bytes=op.bytes, by="role")


def lower_sync(writer: RoleWriter, op: Sync) -> None:
    """Named barrier, where all meet but wefts that end at once."""
    warps = op.warps or sum(role.warps for role in writer.program.roles if role.body)
    writer.emit("BAR.SYNC" if op.wait else "BAR.ARV", barrier_id=op.id, warps=warps)


def lower_cluster_sync(writer: RoleWriter, op: ClusterSync) -> None:
    """Barrier over warps of all CTAs of the cluster (where all of them meet, roles of the leader count once)."""
    size = writer.program.cluster_size
    warps = op.warps * size or sum(
        role.warps * (1 if role.leader_only else size) for role in writer.program.roles if role.body
    )
    writer.emit("UCGABAR", warps=warps)


def lower_fence(writer: RoleWriter, op: Fence) -> None:
    """Order this warp's shared stores before later asynchronous reads."""
    writer.emit("FENCE")


def lower_cp_async_commit(writer: RoleWriter, op: CpAsyncCommit) -> None:
    """Close the group of LDGSTS."""
    writer.emit("LDGDEPBAR")


def lower_cp_async_wait(writer: RoleWriter, op: CpAsyncWait) -> None:
    """Wait for all but the youngest groups of LDGSTS."""
    writer.emit("DEPBAR", pending=op.pending)


def lower_signal(writer: RoleWriter, op: Signal) -> None:
    """Add one to a global semaphore, by one warp of the role."""
    writer.tables.item_values(op.semaphore, writer.where)
    writer.emit("FENCE")
    writer.emit("SEM.RELEASE", semaphore=op.semaphore, by="role")


def lower_await(writer: RoleWriter, op: Await) -> None:
    """Wait until a global semaphore has the value."""
    writer.tables.item_values(op.semaphore, writer.where)
    writer.emit("SEM.ACQUIRE", semaphore=op.semaphore, pending=op.value)
