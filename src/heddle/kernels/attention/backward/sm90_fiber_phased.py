"""Attention backward on H100 without full and empty bits: the roles of `sm90_fiber`, ordered by mbarriers.

P and dS of a block of keys pass to the roles that make dV and dK in registers that a subpartition shares; a whole role
waits for a whole role. Products are wgmma, waited for as a group, so none has a turn. Each role that differentiates
loads row statistics for itself.
"""

from __future__ import annotations

from heddle.kernels._channels import BarrierChannel
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm90_fiber_config import BLOCK, HALVES, FiberBackward90Config, registers, windows
from heddle.kernels.attention.backward.sm90_fiber_memory import GROUP, Memory, StatisticBlocks
from heddle.kernels.attention.backward.sm90_fiber_products import store_sums
from heddle.kernels.attention.backward.sm90_fiber_rows import BlocksOfQueries
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle, SharedBox, kernel


class PhasedRows(BlocksOfQueries):
    """S^T and dP^T in registers of their own; P and dS, rounded, to the pool, and dS to shared memory."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: FiberBackward90Config,
        memory: Memory,
        weights: list[BarrierChannel],
        gradients: list[BarrierChannel],
    ) -> None:
        self.k, self.problem, self.config, self.memory = k, problem, config, memory
        self.weights, self.gradients = weights, gradients
        self.scores, self.weights_gradient = (
            k.registers(name, (BLOCK, config.tile_m), "fp32", warps=(GROUP, 1)) for name in ("s", "dp")
        )
        self.lse, self.dpsum = (
            k.registers(name, (1, config.tile_m), "fp32", warps=(GROUP, 1), spread="columns")
            for name in ("lse", "dpsum")
        )

    def _step(self, item: Item, masked: Index | None) -> None:
        k, memory = self.k, self.memory
        memory.queries.wait()
        self._start(self.scores, memory.keys.current, memory.queries, 0)
        k.load(self.lse, memory.queries.statistics[memory.queries.ring])
        memory.outputs.wait()
        k.load(self.dpsum, memory.outputs.statistics[memory.outputs.ring])
        for half in range(HALVES):
            self._start(self.weights_gradient, memory.values.current, memory.outputs, half)
            k.mma_wait(pending=1)
            if masked is not None:
                self._mask(item, masked, half)
            self._weigh(half)
            k.mma_wait(pending=0)
            self._differentiate(half)
        memory.queries.release()
        memory.outputs.release()
        k.fence()
        memory.gradient_full.arrive(memory.gradient_ring)
        memory.gradient_ring.advance()

    def _start(self, target: RegisterHandle, first: SharedBox, blocks: StatisticBlocks, half: int) -> None:
        """Start S or dP of a block of keys."""
        own = first.part(row=half * BLOCK, rows=BLOCK)
        self.k.mma(target, own, blocks.current, accumulate=False)
        self.k.mma_commit()

    def _weigh(self, half: int) -> None:
        """P^T = 2^(S^T scale log2(e) - LSE), in place, and rounded to the pool."""
        k, weights = self.k, self.weights[half]
        scale = (self.problem.scale * LOG2_E,)
        k.elementwise("exp2_scaled_sub", self.scores, self.scores, self.lse, scalars=scale)
        weights.begin_write()
        k.elementwise("cast", weights.tensor, self.scores)
        weights.end_write()

    def _differentiate(self, half: int) -> None:
        """dS = P (dP - rowsum(dO O)); S of the next block of keys runs while it leaves."""
        k, memory, gradient = self.k, self.memory, self.weights_gradient
        k.elementwise("sub", gradient, gradient, self.dpsum)
        k.elementwise("mul", gradient, gradient, self.scores)
        if half < HALVES - 1:
            self._start(self.scores, memory.keys.current, memory.queries, half + 1)
        self.gradients[half].begin_write()
        k.elementwise("cast", self.gradients[half].tensor, gradient)
        self.gradients[half].end_write()
        if half == 0:
            memory.gradient_empty.wait(memory.gradient_ring, flip=True)
        columns = memory.gradient[memory.gradient_ring].part(col=half * BLOCK, cols=BLOCK)
        k.store(columns, gradient, transposed=True)


class PhasedKeyGradient:
    """dV += P^T dO, or dK += dS^T Q, of some blocks of keys."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        name: str,
        halves: tuple[int, ...],
        factors: list[BarrierChannel],
        blocks: StatisticBlocks,
    ) -> None:
        self.k, self.factors, self.blocks = k, factors, blocks
        shape = (BLOCK, problem.head_dim)
        self.sums = {half: k.registers(f"{name}_{half}", shape, "fp32", warps=(GROUP, 1)) for half in halves}

    def run(self, target: GlobalHandle, scale: float, *, reduce: bool) -> None:
        """All items: the products of all blocks of queries, and the sums, times `scale`, to global memory."""
        k = self.k
        for item in k.work():
            for block in k.range(item.blocks, name="summed"):
                self.blocks.wait()
                for half, total in self.sums.items():
                    factor = self.factors[half]
                    factor.begin_read()
                    k.mma(total, factor.tensor, self.blocks.current, first=block, transposed=True)
                    k.mma_commit()
                    k.mma_wait(pending=0)
                    factor.end_read()
                self.blocks.release()
            store_sums(k, self.sums, item, target, scale, reduce=reduce)


def query_gradient(k: Builder, config: FiberBackward90Config, memory: Memory) -> None:
    """The role that makes dQ = dS K, in parts of the columns, each added to memory."""
    part, ring = k.registers("dq_part", memory.dq_shape, "fp32", warps=(GROUP, 1)), memory.gradient_ring
    cols = memory.dq_shape[1]
    for item in k.work():
        memory.keys.wait()
        for block in k.range(item.blocks, name="multiplied"):
            memory.gradient_full.wait(ring)
            for index in range(config.parts):
                keys = memory.keys.current.part(col=index * cols, cols=cols)
                k.mma(part, memory.gradient[ring], keys, accumulate=False, transposed=True)
                k.mma_commit()
                k.mma_wait(pending=0)
                if index == config.parts - 1:
                    memory.gradient_empty.arrive(ring)
                row, col = memory.dq_target(item, block, index)
                k.store(memory.tensors.dq[item.q_plane, row, col], part, reduce=True)
            ring.advance()
        memory.keys.release()


@kernel
def attention_bwd_fiber_phased(
    k: Builder, problem: AttentionProblem, config: FiberBackward90Config, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over blocks of keys; every hand-over between wefts is ordered by an mbarrier."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory, shape = Memory(k, problem, config), (BLOCK, config.tile_m)
    place, own, tensors = windows(problem, config), registers(problem, config), memory.tensors
    weights, gradients = (
        [BarrierChannel(k, f"{name}{half}", shape, problem.dtype) for half in range(HALVES)]
        for name in ("weights", "gradients")
    )
    rows = PhasedRows(k, problem, config, memory, weights, gradients)
    sums = {
        f"dv{half}": PhasedKeyGradient(k, problem, "dv", (half,), weights, memory.outputs) for half in range(HALVES)
    }
    sums["dk"] = PhasedKeyGradient(k, problem, "dk", tuple(range(HALVES)), gradients, memory.queries)
    k.set_fiber_num(load=1, rows=GROUP, **dict.fromkeys(sums, GROUP), dq=GROUP)
    with k.role("load", window=place["load"], registers=own["load"]):
        for item in k.work():
            memory.load(item, any(items["more"]))
    with k.role("rows", window=place["rows"], registers=own["rows"]):
        for item in k.work():
            rows.run(item, any(items["masked"]), any(items["plain"]))
    for name, gradient in sums.items():
        target, scale = (tensors.dk, problem.scale) if name == "dk" else (tensors.dv, 1.0)
        with k.role(name, window=place[name], registers=own[name]):
            gradient.run(target, scale, reduce=tensors.shared_heads)
    with k.role("dq", window=place["dq"], registers=own["dq"]):
        query_gradient(k, config, memory)
