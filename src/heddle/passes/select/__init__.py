"""Pass 2: select instructions for each tile operation, by GPU generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from heddle.errors import UnsupportedError
from heddle.ir import tile as t
from heddle.ir.warp import DataObject
from heddle.machine.spec import Machine
from heddle.passes.draft import DraftProgram, RoleDraft
from heddle.passes.layout_to_warps import LaidOut
from heddle.passes.pipelined import FirstFragments, PipelinedMma
from heddle.passes.select import (
    bulk,
    by_rows,
    dequantize,
    elementwise,
    fiber,
    fiber_apart,
    fiber_copies,
    fiber_hmma,
    fiber_wmma,
    flow,
    gate,
    loads,
    look_up,
    paths,
    sm_80,
    sm_80_own,
    sm_90,
    sm_100,
    sm_100_vector,
    stores,
    synchronisation,
    tensor_memory,
    transpose,
    weft_mma,
    weft_mma_tm,
)
from heddle.passes.select.tables import Tables
from heddle.passes.select.writer import RoleWriter

Handler = Callable[[RoleWriter, Any], None]

COMMON: dict[type[t.Op], Handler] = {
    t.Advance: flow.lower_advance,
    t.Fill: elementwise.lower_fill,
    t.Elementwise: elementwise.lower_elementwise,
    t.RowReduce: elementwise.lower_row_reduce,
    t.Gate: gate.lower_gate,
    t.Mask: elementwise.lower_mask,
    t.StoreShared: stores.lower_store_shared,
    t.LoadShared: loads.lower_load_shared,
    t.StoreGlobal: stores.lower_store_global,
    t.LoadGlobal: loads.lower_load_global,
    t.CopyThrough: by_rows.lower_copy_through,
    t.LookUpRows: by_rows.lower_look_up_rows,
    t.Dot: by_rows.lower_dot,
    t.CpAsync: sm_80.lower_cp_async,
    t.CpAsyncCommit: synchronisation.lower_cp_async_commit,
    t.CpAsyncWait: synchronisation.lower_cp_async_wait,
    t.Sync: synchronisation.lower_sync,
    t.Fence: synchronisation.lower_fence,
    t.Signal: synchronisation.lower_signal,
    t.Await: synchronisation.lower_await,
}
BULK: dict[type[t.Op], Handler] = {
    t.TmaLoad: bulk.lower_tma_load,
    t.TmaStore: bulk.lower_tma_store,
    t.TmaStoreWait: bulk.lower_tma_store_wait,
    t.Wait: synchronisation.lower_wait,
    t.Arrive: synchronisation.lower_arrive,
    t.Expect: synchronisation.lower_expect,
    t.ClusterSync: synchronisation.lower_cluster_sync,
}
GENERATIONS: Mapping[str, dict[type[t.Op], Handler]] = {
    "sm_80": {
        **COMMON,
        t.Mma: sm_80_own.lower_mma,
        t.LoadShared: sm_80_own.lower_load_shared,
        t.Dequantize: dequantize.lower_dequantize,
        t.LookUp: look_up.lower_look_up,
        FirstFragments: sm_80.lower_first_fragments,
    },
    "sm_90": {
        **COMMON,
        **BULK,
        t.Mma: sm_90.lower_mma,
        t.MmaCommit: sm_90.lower_mma_commit,
        t.MmaWait: sm_90.lower_mma_wait,
        t.CopyToPeer: bulk.lower_copy_to_peer,
        t.TransposeShared: transpose.lower_transpose_shared,
        t.Dequantize: dequantize.lower_by_rows,
        t.LookUp: look_up.lower_by_rows,
    },
    "sm_100": {
        **COMMON,
        **BULK,
        t.CopyToPeer: bulk.lower_copy_to_peer,
        t.TmaAddFolded: bulk.lower_tma_add_folded,
        t.Mma: sm_100.lower_mma,
        t.MmaCommit: sm_100.lower_mma_commit,
        t.Elementwise: sm_100_vector.lower_elementwise,
        t.RowReduce: sm_100_vector.lower_row_reduce,
        t.Mask: sm_100_vector.lower_mask,
        t.LoadTensorMemory: tensor_memory.lower_load_tensor_memory,
        t.Dequantize: dequantize.lower_by_rows,
        t.LookUp: look_up.lower_by_rows,
        t.StoreTensorMemory: tensor_memory.lower_store_tensor_memory,
    },
}
FIBER: Mapping[str, dict[type[t.Op], Handler]] = {
    "sm_80": {
        **COMMON,
        t.CpAsync: fiber_hmma.lower_cp_async,
        t.Mma: fiber_wmma.lower_mma,
        t.MmaApart: fiber_copies.lower_mma_apart,
        t.LoadGlobal: fiber_apart.lower_load_global,
        t.Elementwise: fiber_apart.lower_elementwise,
        t.LoadShared: fiber_hmma.lower_load_shared,
        t.Dequantize: dequantize.lower_into_pool,
        t.LookUp: look_up.lower_into_pool,
        t.SetFiberNum: fiber.lower_set_fiber_num,
        t.SetBusyBit: fiber.lower_set_busy_bit,
        t.TakeToken: fiber.lower_take_token,
    },
    "sm_90": {
        **COMMON,
        **BULK,
        t.Mma: weft_mma.lower_mma,
        t.LoadShared: weft_mma.lower_load_shared,
        t.Dequantize: dequantize.lower_by_rows,
        t.LookUp: look_up.lower_by_rows,
        t.Arrive: fiber.lower_arrive,
        t.SetFiberNum: fiber.lower_set_fiber_num,
        t.SetBusyBit: fiber.lower_set_busy_bit,
        t.TakeToken: fiber.lower_take_token,
    },
    "sm_100": {
        **COMMON,
        **BULK,
        t.Mma: weft_mma_tm.lower_mma,
        t.Fill: weft_mma_tm.lower_fill,
        t.Elementwise: sm_100_vector.lower_elementwise,
        t.RowReduce: sm_100_vector.lower_row_reduce,
        t.Mask: sm_100_vector.lower_mask,
        t.LoadShared: weft_mma_tm.lower_load_shared,
        t.Dequantize: dequantize.lower_by_rows,
        t.LookUp: look_up.lower_by_rows,
        t.LoadTensorMemory: weft_mma_tm.lower_load_tensor_memory,
        t.StoreTensorMemory: weft_mma_tm.lower_store_tensor_memory,
        t.Arrive: fiber.lower_arrive,
        t.SetFiberNum: fiber.lower_set_fiber_num,
        t.SetBusyBit: weft_mma_tm.lower_set_busy_bit,
        t.TakeToken: fiber.lower_take_token,
    },
}
"""What kernels of mode fiber are lowered with, by generation."""
PHASED: Mapping[str, dict[type[t.Op], Handler]] = {
    "sm_80": {
        **GENERATIONS["sm_80"],
        t.CpAsync: fiber_hmma.lower_phased_cp_async,
        t.SetFiberNum: fiber.lower_set_fiber_num,
    },
    "sm_90": {
        **GENERATIONS["sm_90"],
        t.Arrive: fiber.lower_phased_arrive,
        t.SetFiberNum: fiber.lower_set_fiber_num,
    },
    "sm_100": {
        **GENERATIONS["sm_100"],
        t.Arrive: fiber.lower_phased_arrive,
        t.SetFiberNum: fiber.lower_set_fiber_num,
    },
}
"""The same for kernels of mode fiber that barriers order, for machines without full and empty bits."""
NESTED = {
    t.For: flow.lower_for,
    t.ForEachItem: flow.lower_for_each_item,
    t.When: flow.lower_when,
    t.Fibers: paths.lower_fibers,
    t.OtherFibers: paths.lower_other_fibers,
    PipelinedMma: sm_80.lower_pipelined_mma,
}


@dataclass(frozen=True, slots=True)
class SelectInstructions:
    """Lower every operation to instructions on virtual registers.

    `hoisted_descriptors`: wgmma descriptors advance by one add, as library kernels do; False: they are rebuilt from an
    address for each instruction, as a compiler does for a plain kernel.
    """

    hoisted_descriptors: bool = True

    def run(self, laid_out: LaidOut, machine: Machine) -> DraftProgram:
        """Select for the generation of the program. Raises UserError or UnsupportedError at the operation's line."""
        program = laid_out.program
        tables = Tables(program)
        roles, first_warp = [], 0
        for role in program.roles:
            writer = RoleWriter(laid_out, machine, tables, role, first_warp, self.hoisted_descriptors)
            if program.mode == "fiber" and program.architecture == "sm_80":
                writer.whole_rows = fiber_wmma.whole_rows(writer) | fiber_copies.whole_rows(writer)
                writer.summed_columns = fiber_copies.summed_columns(program)
            roles.append(RoleDraft(body=role, first_warp=first_warp, code=flow.lower_role(writer, lower)))
            first_warp += role.warps
        _declare_objects(tables)
        return DraftProgram(
            tile=program,
            roles=tuple(roles),
            streams=tuple(tables.streams.values()),
            work=tables.work(),
            sources=tuple(tables.sources),
            effects=tuple(tables.effects),
            objects=tuple(tables.objects.values()),
        )


def lower(writer: RoleWriter, op: t.Op) -> None:
    """Lower one operation and everything inside it."""
    writer.begin(op)
    if not isinstance(op, t.Mma | t.MmaCommit | t.Advance):
        writer.arrived = False
    nested = NESTED.get(type(op))
    if nested is not None:
        nested(writer, op, lower)  # type: ignore[operator]  # each takes its own type of operation
        return
    handlers = _handlers(writer)
    handler = handlers.get(type(op))
    if handler is None:
        raise UnsupportedError(
            f"{type(op).__name__} does not exist on {writer.program.architecture}",
            where=writer.where,
            hint=f"operations there: {', '.join(sorted(kind.__name__ for kind in handlers))}",
        )
    handler(writer, op)


def _handlers(writer: RoleWriter) -> Mapping[type[t.Op], Handler]:
    architecture, mode = writer.program.architecture, writer.program.mode
    if mode != "fiber":
        return GENERATIONS[architecture]
    table = FIBER if writer.tables.bits else PHASED
    if architecture not in table:
        raise UnsupportedError(f"such kernels of mode fiber are lowered for {', '.join(table)}, not for {architecture}")
    return table[architecture]


def _declare_objects(tables: Tables) -> None:
    program = tables.program
    for tile in program.shared:
        tables.add_object(
            DataObject(
                name=tile.name,
                space="shared",
                shape=(tile.stages, tile.rows, tile.cols),
                dtype=tile.dtype,
                scope="cta",
                overlays=tile.overlays,
            )
        )
    for memory in program.tensor_memory:
        tables.add_object(
            DataObject(
                name=memory.name,
                space="tensor_memory",
                shape=(memory.stages, memory.rows, memory.cols),
                dtype=memory.dtype,
                scope="cta",
                overlays=memory.overlays,
                overlay_col=memory.overlay_col,
            )
        )
    for tensor in program.tensors:
        tables.add_object(
            DataObject(name=tensor.name, space="global", shape=tensor.shape, dtype=tensor.dtype, scope="global")
        )
