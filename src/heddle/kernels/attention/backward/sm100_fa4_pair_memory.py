"""Memory of a CTA of a pair in the backward pass of FlashAttention 4: tiles, barriers, and its copies.

A pair has 256 keys, of which each CTA keeps 128. Of a second operand each CTA has half of the columns of the product:
half of the queries where it makes S and dP, half of the head where it makes dK, dV and dQ, so Q, dO and K are loaded
twice, in parts. dQ needs dS of all 256 keys; each CTA has half of the queries of dQ and gets dS of them from the other.
"""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm100_fa4_config import (
    GROUPS,
    HALF,
    PAIR,
    PAIR_ADDED_COLUMNS,
    PAIR_ADDED_STAGES,
    PART,
    ROWS,
    staged_columns,
)
from heddle.kernels.attention.backward.sm100_fa4_memory import COMPUTE_WARPS, STRIP_BYTES
from heddle.kernels.attention.backward.tensors import GradientTensors
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Barrier, Builder, GlobalHandle, Index, Item, Ring, SharedBox, SharedHandle


class Operand:
    """What both CTAs of a pair load, half each, and the leader's products read; one stage. `full` is the leader's."""

    def __init__(self, k: Builder, name: str) -> None:
        self.ring: Ring = k.ring(f"{name}_ring", 1)
        self.full: Barrier = k.barrier(f"{name}_full", arrivals=PAIR)
        self.empty: Barrier = k.barrier(f"{name}_empty", arrivals=1)


class Statistic:
    """A row statistic of a block of queries, which the warps that compute read; each CTA has all of it."""

    def __init__(self, k: Builder, name: str, source: GlobalHandle) -> None:
        self.k, self.source = k, source
        self.ring: Ring = k.ring(f"{name}_ring", 1)
        self.statistics = k.shared(name, (1, ROWS), "fp32", swizzle_bytes=0)
        self.known = k.barrier(f"{name}_full", arrivals=1)
        self.used = k.barrier(f"{name}_empty", arrivals=COMPUTE_WARPS)

    def load(self, item: Item, row: Index) -> None:
        """Start the copy of the statistic of the block at `row` when its place is free."""
        self.used.wait(self.ring, flip=True)
        self.known.expect(self.ring, bytes=self.statistics.stage_bytes)
        self.k.tma_load(self.statistics[self.ring], self.source[item.q_plane, 0, row], self.known[self.ring])
        self.ring.advance()


class PairMemory:
    """All memory of a CTA of a pair.

    Shared memory: `change` is dS^T of this CTA's half of the queries, 256 keys, and below it what goes to the other.
    Tensor memory: S^T with P^T in its first columns and dQ, folded, in the others; dP^T with dS^T in its first columns;
    dK and dV. Barriers, of the leader: `weights_full` (P), `change_stored` (dS in tensor memory), `change_full` (dS of
    a block in shared memory, and S of the next has been read), `exchanged` (dS has come from the other CTA to both),
    `dq_empty`. Of each CTA: `scores_full`, `gradient_full`, `change_empty` (dS in shared memory), `received` (from the
    other), `dq_full`, `dk_full`, `dv_full`. The rings have phases only.
    """

    def __init__(self, k: Builder, problem: AttentionProblem) -> None:
        self.k, self.problem, self.d, dtype = k, problem, problem.head_dim, problem.dtype
        self.strip = STRIP_BYTES // problem.element_bytes
        self.half = problem.head_dim // PAIR
        self.tensors = GradientTensors(k, problem)
        self.keys, self.values = (k.shared(name, (ROWS, self.d), dtype) for name in ("k", "v"))
        self.keys_across = k.shared("k_across", (PAIR * ROWS, self.half), dtype)
        self.q, self.do = (k.shared(name, (HALF, self.d), dtype) for name in ("q", "do"))
        self.q_across, self.do_across = (k.shared(f"{name}_across", (ROWS, self.half), dtype) for name in ("q", "do"))
        self.of_q, self.of_q_across, self.of_do = (Operand(k, name) for name in ("q", "q_across", "do"))
        self.keys_full = k.barrier("k_across_full", arrivals=PAIR)
        self.queries = Statistic(k, "lse", self.tensors.lse)
        self.outputs = Statistic(k, "dpsum", self.tensors.dpsum)
        self.change = k.shared("ds", ((PAIR + 1) * ROWS, HALF), dtype)
        self.added = k.shared("dq_parts", (ROWS, PAIR_ADDED_COLUMNS), "fp32", stages=PAIR_ADDED_STAGES, swizzle_bytes=0)
        self._tensor_memory()
        self._staged()
        self._barriers()

    def _tensor_memory(self) -> None:
        k, dtype = self.k, self.problem.dtype
        self.tm_scores = k.tensor_memory("s", (ROWS, ROWS), "fp32")
        self.tm_weights = k.tensor_memory("p", (ROWS, ROWS), dtype, overlays=self.tm_scores)
        self.tm_dq = k.tensor_memory("dq", (ROWS, self.half), "fp32", overlays=self.tm_scores, overlay_col=self.half)
        self.tm_gradient = k.tensor_memory("dp", (ROWS, ROWS), "fp32")
        self.tm_change = k.tensor_memory("ds_t", (ROWS, ROWS), dtype, overlays=self.tm_gradient)
        self.tm_dk = k.tensor_memory("dk", (ROWS, self.d), "fp32")
        self.tm_dv = k.tensor_memory("dv", (ROWS, self.d), "fp32")

    def _staged(self) -> None:
        """Where dK and dV leave, the groups side by side: the memory of K and of V."""
        k, shared = self.k, self.tensors.shared_heads
        shape, dtype = (ROWS, GROUPS * staged_columns(self.problem)), "fp32" if shared else self.problem.dtype
        swizzle = 0 if shared else STRIP_BYTES
        self.staged_dk, self.staged_dv = (
            k.shared(name, shape, dtype, swizzle_bytes=swizzle, overlays=under)
            for name, under in (("dk_out", self.keys), ("dv_out", self.values))
        )

    def _barriers(self) -> None:
        k, everyone = self.k, PAIR * COMPUTE_WARPS
        self.step, self.behind, self.read = (k.ring(name, 1) for name in ("step", "behind", "read"))
        self.scores_full, self.gradient_full = k.barrier("s_full", arrivals=1), k.barrier("dp_full", arrivals=1)
        self.weights_full = k.barrier("p_full", arrivals=everyone)
        self.change_stored = k.barrier("ds_t_full", arrivals=everyone)
        self.change_full = k.barrier("ds_full", arrivals=everyone)
        self.change_empty = k.barrier("ds_empty", arrivals=1)
        self.received, self.exchanged = k.barrier("ds_received", arrivals=1), k.barrier("ds_exchanged", arrivals=PAIR)
        self.dq_full = k.barrier("dq_full", arrivals=1)
        self.dq_empty = k.barrier("dq_empty", arrivals=PAIR * GROUP_WARPS)
        self.dk_full, self.dv_full = k.barrier("dk_full", arrivals=1), k.barrier("dv_full", arrivals=1)

    def meet(self) -> None:
        """Wait until the barriers of both CTAs are set up."""
        self.k.cluster_sync()

    def key(self, item: Item) -> Index:
        """The first of this CTA's keys."""
        return item.key + self.k.cta_rank * ROWS

    def load(self, of: Operand, tiles: tuple[tuple[SharedHandle, GlobalHandle, tuple[Index, ...]], ...]) -> None:
        """Start the copies of tiles, each with its source and corner there, when their place is free."""
        of.empty.wait(of.ring, flip=True)
        of.full.expect(of.ring, bytes=sum(tile.stage_bytes for tile, _, _ in tiles), cta="leader")
        for tile, source, corner in tiles:
            self._copy(tile, source, corner, of.full)
        of.ring.advance()

    def load_keys_across(self, item: Item) -> None:
        """Start the copy of this CTA's half of the columns of K, of the keys of both."""
        self.keys_full.expect(bytes=self.keys_across.stage_bytes, cta="leader")
        corner = (item.kv_plane, item.key, self.k.cta_rank * self.half)
        self._copy(self.keys_across, self.tensors.k, corner, self.keys_full)

    def _copy(self, tile: SharedHandle, source: GlobalHandle, corner: tuple[Index, ...], full: Barrier) -> None:
        plane, row, first = corner
        for col in range(0, tile.tile.cols, self.strip):
            box = tile[:].part(col=col, cols=self.strip)
            self.k.tma_load(box, source[plane, row, first + col], full.use(None, cta="leader"))

    def of_change(self, part: int, group: int) -> SharedBox:
        """Where a part of dS goes: this CTA's queries to its keys' rows, the other's below, whence they are sent."""
        col = group * PART
        first, by_rank = (0, PAIR * ROWS) if part == 0 else (PAIR * ROWS, -ROWS)
        return self.change[:].part(row=first, rows=ROWS, col=col, cols=PART).below(self.k.cta_rank * by_rank)

    def send_change(self) -> None:
        """Announce half of dS to the other CTA, and copy it to the rows of this CTA's keys there."""
        amount = ROWS * HALF * self.problem.element_bytes
        self.received.expect(bytes=amount, cta="peer")
        source = self.change[:].part(row=PAIR * ROWS)
        target = self.change[:].part(rows=ROWS).below(self.k.cta_rank * ROWS)
        self.k.copy_to_peer(target, source, self.received.use(None, cta="peer"))

    def copy_out(self, item: Item, target: GlobalHandle, box: SharedBox, col: int) -> None:
        """Start the copy of staged columns of dK or dV to global memory, or their addition with shared heads."""
        self.k.tma_store(target[item.kv_plane, self.key(item), col], box, reduce=self.tensors.shared_heads)

    def add_part(self, item: Item, row: Index, part: int, stage: int) -> None:
        """Start the addition of a part of dQ of this CTA's half of the block at `row` to global memory."""
        dq = self.tensors.dq[item.q_plane, row + self.k.cta_rank * HALF, 0].sized(HALF, self.d)
        self.k.tma_add_folded(dq, self.added.stage(stage), part=part)
