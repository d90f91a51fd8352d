"""Tensors, shared memory and mbarriers of the FIBER-native GEMM of H100, and the roles that copy."""

from __future__ import annotations

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels.gemm.fiber_epilogue import FiberEpilogue
from heddle.kernels.gemm.sm90_fiber_shape import BLOCK_M, COPY_REGISTERS, GROUP, STRIP_BYTES, TILE_K, FiberGemm
from heddle.lang import Builder, Cta, GlobalBox, Index, Item, RegisterHandle, RegisterPart, SharedBox


class Memory:
    """Slices of A and B in a ring that the copying weft fills, and chunks of C on their way out.

    The CTAs of a cluster lie one above the other: each loads its own rows of A and its part of B for all of them.
    """

    def __init__(self, k: Builder, p: FiberGemm) -> None:
        self.k, self.p = k, p
        self.a_global, self.b_global = k.tensor("A", (p.m, p.k), p.dtype), k.tensor("B", (p.n, p.k), p.dtype)
        self.epilogue = FiberEpilogue(k, p.problem, (BLOCK_M, p.columns), (GROUP, 1), ahead=2)
        self.c_global = self.epilogue.c_global
        self.a = k.shared("a_shared", (p.tile_m, TILE_K), p.dtype, stages=p.stages)
        self.b = k.shared("b_shared", (p.tile_n, TILE_K), p.dtype, stages=p.stages)
        self.ring, self.full = k.ring("ring", p.stages), k.barrier("full", arrivals=1, stages=p.stages)
        readers = GROUP * (p.groups + (p.exchange == "bits")) * p.cluster  # with bits others load fragments
        self.empty = k.barrier("empty", arrivals=readers, stages=p.stages)
        self.everyone: Cta = "all" if p.cluster > 1 else "own"
        if p.by_bulk_copy:
            self.chunk = k.shared("chunk", (BLOCK_M, p.output_part_n), p.dtype, stages=p.output_stages)
            self.chunks = k.ring("chunks", p.output_stages)
            self.chunk_full = k.barrier("chunk_full", arrivals=GROUP, stages=p.output_stages)
            self.chunk_empty = k.barrier("chunk_empty", arrivals=1, stages=p.output_stages)

    def meet(self) -> None:
        """Wait until the barriers of the other CTAs are there."""
        if self.p.cluster > 1:
            self.k.cluster_sync(warps=1)

    def part(self) -> None:
        """Stay until no other CTA of the cluster signals this one any more: all stages have been given back."""
        if self.p.cluster > 1:
            for _ in range(self.p.stages):
                self.empty.wait(self.ring, flip=True)
                self.ring.advance()

    def load(self, item: Item) -> None:
        """Global to shared memory, as far ahead as the ring allows."""
        k, ring, full = self.k, self.ring, self.full
        for kb in k.range(item.k_blocks):
            self.empty.wait(ring, flip=True)
            full.expect(ring, bytes=self.a.stage_bytes + self.b.stage_bytes)
            k.tma_load(self.a[ring], self.a_global[self._row(item), kb * TILE_K], full[ring])
            b_box = self.b_global[item.col, kb * TILE_K]
            k.tma_load(self.b[ring], b_box, full[ring], multicast=self.p.cluster)
            ring.advance()

    def a_rows(self, group: int) -> SharedBox:
        """The rows of A that a group multiplies, of the current slice."""
        return self.a[self.ring].part(row=group * BLOCK_M, rows=BLOCK_M)

    def b_columns(self, part: int) -> SharedBox:
        """The columns of C that a part covers: rows of B, of the current slice."""
        return self.b[self.ring].part(row=part * self.p.part_n, rows=self.p.part_n)

    def wait(self) -> None:
        """Wait for the slice that the ring points to."""
        self.full.wait(self.ring)

    def release(self) -> None:
        """Give the slice back, to the copying wefts of the whole cluster."""
        self.empty.arrive(self.ring, cta=self.everyone)
        self.ring.advance()

    def release_previous(self) -> None:
        """Give back the slice before the one that the ring points to."""
        self.empty.arrive(self.ring.previous, cta=self.everyone)

    def begin_chunk(self) -> None:
        """Wait for room for a chunk of C, where chunks go through shared memory."""
        if self.p.by_bulk_copy:
            self.chunk_empty.wait(self.chunks, flip=True)

    def put(self, item: Item, group: int, part: int, out: RegisterHandle | RegisterPart, col: int = 0) -> None:
        """Columns of a chunk on their way out, from its column `col` of C on: to shared memory where bulk copies can.

        Else to global memory.
        """
        cols = out.cols if isinstance(out, RegisterPart) else out.tile.cols
        if self.p.by_bulk_copy:
            self.k.store(self.chunk[self.chunks].part(col=col, cols=cols), out)
        else:
            self.k.store(self._corner(item, group, part, col), out)

    def end_chunk(self) -> None:
        """Let the chunk be stored."""
        if self.p.by_bulk_copy:
            self.k.fence()
            self.chunk_full.arrive(self.chunks)
            self.chunks.advance()

    def drain(self, item: Item) -> None:
        """Chunks of C from shared to global memory."""
        k, strip = self.k, STRIP_BYTES // dtype_bytes(self.p.dtype)
        for part in range(self.p.parts):
            for group in range(self.p.groups):
                self.chunk_full.wait(self.chunks)
                for col in range(0, self.p.output_part_n, strip):
                    box = self.chunk[self.chunks].part(col=col, cols=min(strip, self.p.output_part_n - col))
                    k.tma_store(self._corner(item, group, part, col), box)
                k.tma_store_wait(pending=0)
                self.chunk_empty.arrive(self.chunks)
                self.chunks.advance()

    def row(self, item: Item, group: int) -> Index:
        """The first row of C that a group makes."""
        return self._row(item) + group * BLOCK_M

    def _corner(self, item: Item, group: int, part: int, col: int = 0) -> GlobalBox:
        first = item.output_col if self.p.problem.gated else item.col
        return self.c_global[self.row(item, group), first + (part * self.p.output_part_n + col)]

    def _row(self, item: Item) -> Index:
        return item.row + self.k.cta_rank * self.p.tile_m if self.p.cluster > 1 else item.row


def copies(k: Builder, p: FiberGemm, memory: Memory) -> None:
    """The roles of one weft that copy: operands in, and C out where bulk copies can."""
    with k.role("copy", window=0, registers=COPY_REGISTERS):
        memory.meet()
        for item in k.work():
            memory.load(item)
        memory.part()
    if p.by_bulk_copy:
        with k.role("drain", window=1, registers=COPY_REGISTERS):
            for item in k.work():
                memory.drain(item)
