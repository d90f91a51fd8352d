"""GEMM on H100 with wefts, but without full and empty bits: roles meet at mbarriers, products are wgmma.

Four wefts multiply 64 rows together, A and B from shared memory, and wait for a whole product as today's kernel does:
a slice is given back when the next one's products are under way. What FIBER gives is that wefts own no registers: sums
of a tile pass to wefts of their own, which store them while the next tile is multiplied, in registers that a
subpartition shares or, where none are shared, in shared memory.
"""

from __future__ import annotations

from heddle.kernels._channels import BarrierChannel, SharedChannel
from heddle.kernels.gemm.sm90_fiber_memory import Memory, copies
from heddle.kernels.gemm.sm90_fiber_shape import BLOCK_M, GROUP, LITERAL_REGISTERS, TURN_REGISTERS, FiberGemm
from heddle.kernels.gemm.sm90_fiber_store import Store
from heddle.lang import Builder, Item, RegisterHandle, kernel


class _Multiply:
    """The code of the groups that multiply. `g` numbers them."""

    def __init__(self, k: Builder, p: FiberGemm, memory: Memory) -> None:
        self.k, self.memory, tile = k, memory, (BLOCK_M, p.part_n)
        channel = SharedChannel if p.exchange == "shared" else BarrierChannel
        self.total = [channel(k, f"total_{g}", tile, "fp32") for g in range(p.groups)]
        self.sums = [
            [k.registers(f"sums_{g}_{part}", tile, "fp32", warps=(GROUP, 1)) for part in range(p.parts)]
            for g in range(p.groups)
        ]

    def multiply(self, item: Item, g: int) -> None:
        """Add up a tile in own registers, with the products of one slice under way while the next is waited for."""
        k, memory = self.k, self.memory
        self._product(g, accumulate=False)
        memory.ring.advance()
        for _ in k.range(item.k_blocks - 1):
            self._product(g, accumulate=True)
            k.mma_wait(pending=1)
            memory.release_previous()
            memory.ring.advance()
        k.mma_wait(pending=0)
        memory.release_previous()
        for sums in self.sums[g]:
            self._hand_over(g, sums)

    def _product(self, g: int, *, accumulate: bool) -> None:
        self.memory.wait()
        for part, sums in enumerate(self.sums[g]):
            self.k.mma(sums, self.memory.a_rows(g), self.memory.b_columns(part), accumulate=accumulate)
        self.k.mma_commit()

    def _hand_over(self, g: int, sums: RegisterHandle) -> None:
        channel = self.total[g]
        if isinstance(channel, SharedChannel):
            channel.put(sums)
            return
        channel.begin_write()
        self.k.elementwise("copy", channel.tensor, sums)
        channel.end_write()


@kernel
def gemm_sm90_fiber_phased(k: Builder, problem: FiberGemm) -> None:
    """Persistent over the tiles of C; every hand-over between roles is by mbarriers."""
    k.flops, k.cluster_size = 2 * problem.m * problem.n * problem.k, problem.cluster
    k.work_items(problem.items(), clusters=problem.clusters)
    memory, groups = Memory(k, problem), range(problem.groups)
    products = _Multiply(k, problem, memory)
    out = Store(k, problem, memory, products.total)
    drain = {"drain": 1} if problem.by_bulk_copy else {}
    k.set_fiber_num(copy=1, **drain, **{f"multiply_{g}": GROUP for g in groups}, store=GROUP)

    copies(k, problem, memory)
    beside = LITERAL_REGISTERS if problem.exchange == "shared" else TURN_REGISTERS
    for g in groups:
        with k.role(f"multiply_{g}", window=g, registers=problem.tile_n // 2 + beside):
            for item in k.work():
                products.multiply(item, g)

    with k.role("store", window=1, registers=problem.store_registers):
        for item in k.work():
            out.store(item)
