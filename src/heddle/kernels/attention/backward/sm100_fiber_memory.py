"""Tensors, pool, shared and tensor memory of the FIBER-native backward pass of B200, and the wefts that copy."""

from __future__ import annotations

from typing import TypeVar

from heddle.ir.tile_refs import BarrierUse
from heddle.kernels.attention.backward.sm100_fa4_config import ROWS
from heddle.kernels.attention.backward.sm100_fiber_config import (
    ADDED_STAGES,
    CHANGE_STAGES,
    GROUP,
    LANES,
    PART,
    STEP,
    FiberBackward100Config,
    change_steps,
    fills_lanes,
)
from heddle.kernels.attention.backward.tensors import GradientTensors
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, SharedBox

Made = TypeVar("Made")
STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Steps:
    """Steps of Q or dO in shared memory, which the wefts that multiply give back, and their row statistics.

    `full`, `empty`: of a step; `known`, `used`: of its statistic, which `readers` wefts give back. `ahead`: a second
    position in the same ring.
    """

    def __init__(
        self,
        memory: Memory,
        names: tuple[str, str],
        sources: tuple[GlobalHandle, GlobalHandle],
        stages: int,
        readers: int,
    ) -> None:
        k, (name, statistic) = memory.k, names
        self.memory, self.sources = memory, sources
        self.ring, self.ahead = k.ring(f"{name}_ring", stages), k.ring(f"{name}_ahead", stages)
        self.tile = k.shared(name, (STEP, memory.d), memory.problem.dtype, stages=stages)
        self.statistics = k.shared(statistic, (1, STEP), "fp32", stages=stages, swizzle_bytes=0)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=stages)
        self.empty = k.barrier(f"{name}_empty", arrivals=GROUP, stages=stages)
        self.known = k.barrier(f"{statistic}_full", arrivals=1, stages=stages)
        self.used = k.barrier(f"{statistic}_empty", arrivals=readers, stages=stages)

    def load(self, item: Item, row: Index) -> None:
        """Start the copies of the step at `row` and of its statistic when their places are free."""
        k, ring, memory = self.memory.k, self.ring, self.memory
        self.empty.wait(ring, flip=True)
        self.full.expect(ring, bytes=self.tile.stage_bytes)
        memory.copy_in(self.tile[ring], self.sources[0], item, row, self.full[ring])
        self.used.wait(ring, flip=True)
        self.known.expect(ring, bytes=self.statistics.stage_bytes)
        k.tma_load(self.statistics[ring], self.sources[1][item.q_plane, 0, row], self.known[ring])
        ring.advance()


class Memory:
    """All memory of a FIBER-thread, and what orders its use.

    Pool: `keys`, `values` and `turned` (K transposed), fragments of the item; of a step P and dS (`weights`, `changes`)
    for products, and P for dS (`factors`). Tensor memory: S of two steps, dP of one, dQ^T of one or dQ of a block, dK
    and dV. Tokens, which say that the last product has been issued: `issued` (S), `gradient_issued`, `dq_issued`,
    `dk_done`, `dv_done`. mbarriers: `change` (dS in shared memory), `added` (a part of dQ on its way), `out` (of dK or
    dV). What a step has is listed by lane; at head size 128 both have one place for P, dP and dS, else each (`apart`).
    """

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberBackward100Config) -> None:
        self.k, self.problem, self.d, dtype = k, problem, problem.head_dim, problem.dtype
        self.transposed, self.change_steps = fills_lanes(problem), change_steps(problem)
        self.apart = 1 if self.transposed else LANES
        self.strip = min(STRIP_BYTES // problem.element_bytes, self.d)
        self.tensors = GradientTensors(k, problem)
        self.keys_shared, self.values_shared = (k.shared(name, (ROWS, self.d), dtype) for name in ("k", "v"))
        self.pair_full = k.barrier("kv_full", arrivals=1)
        self.queries = Steps(self, ("q", "lse"), (self.tensors.q, self.tensors.lse), config.queries, self.apart * GROUP)
        self.outputs = Steps(self, ("do", "dpsum"), (self.tensors.do, self.tensors.dpsum), config.outputs, GROUP)
        self._channels()
        self.change = k.shared("ds", (ROWS, self.change_steps * STEP), dtype, stages=CHANGE_STAGES)
        self.change_ring = k.ring("ds_ring", CHANGE_STAGES)
        self.change_full, self.change_empty = (
            k.barrier(f"ds_{name}", arrivals=GROUP, stages=CHANGE_STAGES) for name in ("full", "empty")
        )
        part = (PART, self.d) if self.transposed else (ROWS, PART)
        self.added = k.shared("dq_parts", part, "fp32", stages=ADDED_STAGES, swizzle_bytes=0)
        self.added_ring = k.ring("dq_ring", ADDED_STAGES)
        self.added_full = k.barrier("dq_full", arrivals=GROUP, stages=ADDED_STAGES)
        self.added_empty = k.barrier("dq_empty", arrivals=1, stages=ADDED_STAGES)
        shared = self.tensors.shared_heads
        self.out_columns = PART if shared else self.strip
        self.out = k.shared(
            "out",
            (ROWS, self.out_columns),
            "fp32" if shared else dtype,
            swizzle_bytes=0 if shared else STRIP_BYTES,
            overlays=self.values_shared,
        )
        self.out_ring = k.ring("out_ring", 1)
        self.out_full, self.out_empty = k.barrier("out_full", arrivals=GROUP), k.barrier("out_empty", arrivals=1)

    def _channels(self) -> None:
        """What passes between wefts in the pool and in tensor memory."""
        k, dtype = self.k, self.problem.dtype
        self.keys, self.values = (k.pool(name, (ROWS, self.d), dtype)[0] for name in ("keys", "values"))
        self.turned = k.pool("keys_turned", (self.d, ROWS), dtype)[0] if self.transposed else None
        self.weights, self.factors, self.changes = (
            self._by_lane([k.pool(f"{name}{i}", (ROWS, STEP), dtype)[0] for i in range(self.apart)])
            for name in ("weights", "factors", "changes")
        )
        self.scores = [k.tensor_memory(f"s{lane}", (ROWS, STEP), "fp32") for lane in range(LANES)]
        self.gradient = self._by_lane([k.tensor_memory(f"dp{i}", (ROWS, STEP), "fp32") for i in range(self.apart)])
        self.dq = k.tensor_memory("dq", (self.d, STEP) if self.transposed else (ROWS, self.d), "fp32")
        self.dk, self.dv = (k.tensor_memory(name, (ROWS, self.d), "fp32") for name in ("dk", "dv"))
        self.issued = [k.token(f"s{lane}_issued") for lane in range(LANES)]
        self.gradient_issued = self._by_lane([k.token(f"dp{i}_issued") for i in range(self.apart)])
        self.dq_issued = k.token("dq_issued")
        self.dk_done, self.dv_done = k.token("dk_done"), k.token("dv_done")

    @staticmethod
    def _by_lane(made: list[Made]) -> list[Made]:
        """Return what each lane has, of one for both or one for each."""
        return [made[lane % len(made)] for lane in range(LANES)]

    def copy_in(self, box: SharedBox, source: GlobalHandle, item: Item, row: Index, barrier: BarrierUse) -> None:
        """Start the copies of a box of Q or dO."""
        for col in range(0, self.d, self.strip):
            self.k.tma_load(box.part(col=col, cols=self.strip), source[item.q_plane, row, col], barrier)

    def load(self, item: Item, has: dict[str, bool]) -> None:
        """K and V, then Q two steps ahead of what is multiplied with P and dS, and dO one step, or two as well."""
        k, queries, outputs = self.k, self.queries, self.outputs
        early = self.apart
        self.pair_full.expect(bytes=2 * self.keys_shared.stage_bytes)
        for shared, source in ((self.keys_shared, self.tensors.k), (self.values_shared, self.tensors.v)):
            for col in range(0, self.d, self.strip):
                box = shared[:].part(col=col, cols=self.strip)
                k.tma_load(box, source[item.kv_plane, item.key, col], self.pair_full[:])
        queries.load(item, item.first)
        queries.load(item, item.first + STEP)
        for lane in range(early):
            outputs.load(item, item.first + lane * STEP)
        if has["more"]:
            with k.when(item.more):
                for block in k.range(item.more, name="loaded"):
                    row = item.first + block * ROWS
                    for lane in range(LANES):
                        queries.load(item, row + (ROWS + lane * STEP))
                        outputs.load(item, row + (early + lane) * STEP)
        if early < LANES:
            outputs.load(item, item.last)

    def fragments(self) -> None:
        """K, V and, where dQ is made with it, K transposed from shared memory to the pool."""
        k = self.k
        self.pair_full.wait()
        for fragments, shared in ((self.keys, self.keys_shared), (self.values, self.values_shared)):
            k.load(fragments, shared[:])
            k.set_busy_bit(fragments, "full")
        if self.turned is not None:
            k.load(self.turned, self.keys_shared[:], transposed=True)
            k.set_busy_bit(self.turned, "full")

    def store(self, item: Item) -> None:
        """Add parts of dQ to global memory, then copy dV and dK out (with shared heads: add them)."""
        k = self.k
        for block in k.range(item.blocks, name="stored"):
            for part in range((ROWS if self.transposed else self.d) // PART):
                self.added_full.wait(self.added_ring)
                row, col = (part * PART, 0) if self.transposed else (0, part * PART)
                target = self.tensors.dq[item.q_plane, item.first + block * ROWS + row, col]
                k.tma_store(target, self.added[self.added_ring], reduce=True)
                k.tma_store_wait(pending=0)
                self.added_empty.arrive(self.added_ring, by="role")
                self.added_ring.advance()
        for gradient in (self.tensors.dv, self.tensors.dk):
            for col in range(0, self.d, self.out_columns):
                self.out_full.wait(self.out_ring)
                k.tma_store(gradient[item.kv_plane, item.key, col], self.out[:], reduce=self.tensors.shared_heads)
                k.tma_store_wait(pending=0)
                self.out_empty.arrive(self.out_ring, by="role")
                self.out_ring.advance()
