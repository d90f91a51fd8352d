"""What the GEMM kernels of H100 share: the ring of A and B tiles, its producer, and the loop of wgmma over it."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.place import corner, k_start
from heddle.kernels.gemm.raster import uneven_start
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, Cta, Index, Item, RegisterHandle

PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232
"""What setmaxnreg gives a producer group and two consumer groups: 128 x 40 + 256 x 232 is within 65,536 registers."""


class Pipeline:
    """The tensors and the ring between producer and consumers; `consumer_warps` warps release each stage."""

    def __init__(self, k: Builder, problem: GemmProblem, config: GemmConfig, consumer_warps: int) -> None:
        self.k, self.config = k, config
        self.a_global = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.b_global = k.tensor("B", (problem.n, problem.k), problem.dtype)
        self.a = k.shared("a", (config.tile_m, config.tile_k), problem.dtype, stages=config.stages)
        self.b = k.shared("b", (config.tile_n, config.tile_k), problem.dtype, stages=config.stages)
        self.ring, self.released = k.ring("load", config.stages), k.ring("release", config.stages)
        self.full = k.barrier("full", arrivals=1, stages=config.stages)
        arriving = consumer_warps // GROUP_WARPS if config.early_release else consumer_warps
        self.empty = k.barrier("empty", arrivals=arriving * config.cluster, stages=config.stages)

    def begin(self) -> None:
        """Wait until every warp sees the barriers initialised."""
        if self.config.cluster > 1:
            self.k.cluster_sync()
        else:
            self.k.sync()

    def end(self) -> None:
        """Stay until no other CTA of the cluster signals this one any more."""
        if self.config.cluster > 1:
            self.k.cluster_sync()

    def load(self, item: Item) -> None:
        """Producer: fill the ring with the item's tiles, as far ahead as the ring allows."""
        k, config = self.k, self.config
        for kb in k.range(item.k_blocks, name="kb"):
            at_k = k_start(item, config) + kb * config.tile_k
            self.empty.wait(self.ring, flip=True)
            self.full.expect(self.ring, bytes=self.a.stage_bytes + self.b.stage_bytes)
            row, col = corner(k, item, config)
            a_box, b_box = self.a_global[row, at_k], self.b_global[col, at_k]
            k.tma_load(self.a[self.ring], a_box, self.full[self.ring], multicast=config.cluster_n)
            k.tma_load(self.b[self.ring], b_box, self.full[self.ring], multicast=config.cluster_m)
            self.ring.advance()

    def multiply(self, item: Item, acc: RegisterHandle, k_blocks: Sequence[int]) -> None:
        """Consumer: acc = A B^T of an item; a stage goes back once the products after it are under way.

        `k_blocks`: the steps of every item.
        """
        k, ring = self.k, self.ring
        self.full.wait(ring)
        k.mma(acc, self.a[ring], self.b[ring], accumulate=False)
        k.mma_commit()
        self._read()
        ring.advance()
        if uneven_start(k_blocks):
            with k.when(item.k_more):
                self._other_steps(item.k_more, acc)
        elif min(k_blocks) > 1:
            self._other_steps(item.k_blocks - 1, acc)

    def _other_steps(self, count: Index, acc: RegisterHandle) -> None:
        k, ring = self.k, self.ring
        for _ in k.range(count, name="kb"):
            self.full.wait(ring)
            k.mma(acc, self.a[ring], self.b[ring])
            k.mma_commit()
            self._read()
            k.mma_wait(pending=1)
            self._release()
            ring.advance()

    def finish(self) -> None:
        """Consumer: wait for the last products and give their stage back."""
        self.k.mma_wait(pending=0)
        self._release()

    def skip(self, item: Item) -> None:
        """Consumer: pass over the stages of an item that another group works on."""
        for _ in self.k.range(item.k_blocks, name="kb"):
            self.k.advance(self.ring, self.released)

    def _release(self) -> None:
        """Give the oldest stage that is not released yet to the producers that fill it, those of the whole cluster."""
        if not self.config.early_release:
            self.empty.arrive(self.released, cta=self._everyone)
            self.released.advance()

    def _read(self) -> None:
        """With early release: the matrix unit gives the current stage back when its products have read it."""
        if self.config.early_release:
            self.empty.arrive_after_reads(self.ring, cta=self._everyone)

    @property
    def _everyone(self) -> Cta:
        return "all" if self.config.cluster > 1 else "own"
