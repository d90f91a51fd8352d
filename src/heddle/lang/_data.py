"""Operations that move tiles: copies between memories, loads and stores of registers."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir import tile
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.lang._handles import GlobalBox, RegisterHandle, SharedBox, TensorMemoryBox
from heddle.lang._operands import Registers, check_equal, register_operand, whole_tile
from heddle.lang._sync import SyncOps
from heddle.lang._where import caller


class DataOps(SyncOps):
    """The operations of the builder that move."""

    def tma_load(self, dst: SharedBox, src: GlobalBox, barrier: tile.BarrierUse, *, multicast: int = 1) -> None:
        """Start a bulk copy global -> shared that signals `barrier`; `multicast` CTAs each load a part for all."""
        ref = src.reference(*self._box(dst, src))
        self._emit(tile.TmaLoad(dst=dst.ref, src=ref, barrier=barrier, multicast=multicast, where=caller()))

    def tma_store(self, dst: GlobalBox, src: SharedBox, *, reduce: bool = False) -> None:
        """Start a bulk copy shared -> global (or a reduction into it) as one group."""
        ref = dst.reference(*self._box(src, dst))
        self._emit(tile.TmaStore(dst=ref, src=src.ref, reduce=reduce, where=caller()))

    def tma_add_folded(self, dst: GlobalBox, src: SharedBox, *, part: int) -> None:
        """Start adding columns of a folded accumulator to global memory; `dst` has the size of the whole (`sized`).

        `src` [2m, w]: the `part`-th w columns of the left half of [m, n] above those of the right half.
        """
        if not isinstance(src, SharedBox) or not isinstance(dst, GlobalBox) or dst.size is None:
            raise UserError(
                "a folded accumulator goes from shared[ring] to tensor[row, col].sized(m, n)", where=caller()
            )
        self._emit(tile.TmaAddFolded(dst=dst.reference(*dst.size), src=src.ref, part=part, where=caller()))

    def copy_to_peer(self, dst: SharedBox, src: SharedBox, barrier: tile.BarrierUse) -> None:
        """Start a bulk copy of whole rows into the shared memory of the other CTA of a pair, with `barrier` there."""
        where = caller()
        if not isinstance(dst, SharedBox) or not isinstance(src, SharedBox):
            raise UserError("a copy to the peer goes from shared memory to shared memory", where=where)
        if barrier.cta != "peer":
            raise UserError(
                f"a copy to the peer signals a barrier there, not that of CTA {barrier.cta!r}",
                where=where,
                hint='name it as barrier.use(ring, cta="peer")',
            )
        self._emit(tile.CopyToPeer(dst=dst.ref, src=src.ref, barrier=barrier, where=where))

    def tma_store_wait(self, *, pending: int = 0) -> None:
        """Wait until at most `pending` groups of bulk stores still read shared memory."""
        self._emit(tile.TmaStoreWait(pending=pending, where=caller()))

    def cp_async(self, dst: SharedBox, src: GlobalBox, *, bytes_per_lane: int = 16, own_rows: bool = False) -> None:
        """Start a copy global -> shared by all warps of the role (cp.async).

        `own_rows` (mode fiber on sm_80): each weft copies a part of the rows as one block, those that it multiplies or
        loads, so that it waits for its own copies alone.
        """
        if bytes_per_lane not in (4, 8, 16):
            raise UserError(f"cp.async copies 4, 8 or 16 bytes a lane, got {bytes_per_lane}", where=caller())
        ref = src.reference(*self._box(dst, src))
        self._emit(tile.CpAsync(dst=dst.ref, src=ref, bytes_per_lane=bytes_per_lane, own_rows=own_rows, where=caller()))

    def copy_through(self, dst: SharedBox, src: GlobalBox, *, copies: int = 1) -> None:
        """Copy global -> shared through registers by all warps of the role, `copies` times side by side.

        `dst` is the place of the first copy. Barriers order it, as any store.
        """
        ref = src.reference(*self._box(dst, src))
        self._emit(tile.CopyThrough(dst=dst.ref, src=ref, copies=copies, where=caller()))

    def cp_async_commit(self) -> None:
        """Close the group of the copies started since the last one."""
        self._emit(tile.CpAsyncCommit(where=caller()))

    def cp_async_wait(self, *, pending: int) -> None:
        """Wait until at most `pending` groups of asynchronous copies are on their way."""
        self._emit(tile.CpAsyncWait(pending=pending, where=caller()))

    def load(
        self,
        dst: RegisterHandle,
        src: GlobalBox | SharedBox | TensorMemoryBox,
        *,
        transposed: bool = False,
        each: bool = False,
    ) -> None:
        """Load a register tile from global, shared or tensor memory.

        `transposed` (mode fiber on sm_100): a box of 16-bit elements in shared memory, turned, element by element.
        `each` (mode fiber on sm_80): each of four wefts loads the whole box into its quarter of the rows of a pool
        tensor, so that there is a copy in each subpartition.
        """
        name, (rows, cols), where = whole_tile(dst, "the destination"), (dst.tile.rows, dst.tile.cols), caller()
        if (transposed or each) and not isinstance(src, SharedBox):
            raise UserError("transposed and each are for loads from shared memory", where=where)
        if isinstance(src, GlobalBox):
            check_equal("the source", src.size or (rows, cols), (rows, cols))
            self._emit(tile.LoadGlobal(dst=name, src=src.reference(rows, cols), where=where))
        elif isinstance(src, SharedBox):
            size = (src.ref.rows * SUBPARTITIONS, src.ref.cols) if each else (src.ref.rows, src.ref.cols)
            check_equal("the source", size, (cols, rows) if transposed else (rows, cols))
            self._emit(tile.LoadShared(dst=name, src=src.ref, transposed=transposed, each=each, where=where))
        elif isinstance(src, TensorMemoryBox):
            check_equal("the source", (src.ref.rows, src.ref.cols), (rows, cols))
            self._emit(tile.LoadTensorMemory(dst=name, src=src.ref, where=where))
        else:
            raise UserError(f"cannot load from {type(src).__name__}", where=where)

    def store(
        self,
        dst: GlobalBox | SharedBox | TensorMemoryBox,
        src: Registers,
        *,
        reduce: bool = False,
        wait: bool = True,
        by_element: bool = False,
        transposed: bool = False,
        thread_order: bool = False,
    ) -> None:
        """Store a register tile, or columns of it, converted to the destination's type; `reduce`: add.

        To tensor memory, `wait=False` leaves the wait to a later such store, which waits for all. To shared memory,
        `by_element` stores 16-bit elements one by one, as code does whose layout has no wider stores; `transposed`
        stores the transposed tile (sm_90 on); `thread_order` stores 32-bit elements in whatever order the threads have
        them, without bank conflicts, for a bulk copy to memory that is kept in the same order. Matrix fragments go to
        global memory `transposed`, too, and rows of lanes (sm_100) as 16-bit elements.
        """
        (name, col, rows, cols), where = register_operand(src, "the source"), caller()
        size = (cols, rows) if transposed else (rows, cols)
        if thread_order and not isinstance(dst, SharedBox):
            raise UserError("thread_order is for stores to shared memory", where=where)
        if isinstance(dst, GlobalBox):
            check_equal("the destination", dst.size or size, size)
            ref = dst.reference(*size)
            self._emit(
                tile.StoreGlobal(dst=ref, src=name, reduce=reduce, src_col=col, transposed=transposed, where=where)
            )
        elif isinstance(dst, SharedBox) and not reduce:
            check_equal("the destination", (dst.ref.rows, dst.ref.cols), size)
            self._emit(
                tile.StoreShared(
                    dst=dst.ref,
                    src=name,
                    src_col=col,
                    by_element=by_element,
                    transposed=transposed,
                    thread_order=thread_order,
                    where=where,
                )
            )
        elif isinstance(dst, TensorMemoryBox) and not (reduce or transposed):
            check_equal("the destination", (dst.ref.rows, dst.ref.cols), (rows, cols))
            self._emit(tile.StoreTensorMemory(dst=dst.ref, src=name, src_col=col, wait=wait, where=where))
        else:
            raise UserError(f"cannot {'reduce' if reduce else 'store'} to {type(dst).__name__}", where=where)

    def transpose(self, dst: SharedBox, src: SharedBox) -> None:
        """Write a box of 8-bit elements in shared memory transposed into another, by all warps of the role."""
        where = caller()
        if not isinstance(dst, SharedBox) or not isinstance(src, SharedBox):
            raise UserError("a transpose goes from shared memory to shared memory", where=where)
        check_equal("the destination", (dst.ref.rows, dst.ref.cols), (src.ref.cols, src.ref.rows))
        self._emit(tile.TransposeShared(dst=dst.ref, src=src.ref, where=where))

    def fill(self, dst: RegisterHandle, value: float = 0.0) -> None:
        """Set all elements of a register tile."""
        self._emit(tile.Fill(dst=whole_tile(dst, "the destination"), value=value, where=caller()))

    @staticmethod
    def _box(shared: SharedBox, box: GlobalBox) -> tuple[int, int]:
        if not isinstance(shared, SharedBox) or not isinstance(box, GlobalBox):
            raise UserError("a copy goes between shared[ring] and tensor[row, col]", where=caller())
        size = (shared.ref.rows, shared.ref.cols)
        check_equal("the global box", box.size or size, size)
        return size
