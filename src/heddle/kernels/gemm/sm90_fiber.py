"""GEMM on H100 with FIBER: roles of wefts that hand fragments and sums to each other in shared vector registers.

One weft copies slices of A and B into shared memory, four load A as fragments into the pool, one or two groups of four
multiply 64 rows each in lockstep (A from the pool, B from shared memory, fetched once for all four), four store. The
sum of a tile grows in registers of the multiplying weft; the last step of the chain alone writes the pool, so the next
tile is under way while this one is stored. A wide tile has two parts of its columns, which pass through the same
registers of the pool one after the other. Two groups take turns, so that one multiplies while the other waits to give
a slice back: lockstep instructions of different groups must come in one order in all subpartitions, and tokens in the
pool, one for each subpartition, keep it.
"""

from __future__ import annotations

from heddle.kernels._channels import BitChannel
from heddle.kernels.gemm.sm90_fiber_memory import Memory, copies
from heddle.kernels.gemm.sm90_fiber_shape import BLOCK_M, COPY_REGISTERS, GROUP, TILE_K, TURN_REGISTERS, FiberGemm
from heddle.kernels.gemm.sm90_fiber_store import Store
from heddle.lang import Builder, Item, kernel


class Turns:
    """The order of the groups: `turn[g]` goes from group g to the next one; nothing with one group."""

    def __init__(self, k: Builder, groups: int) -> None:
        self.groups = groups
        self.turn = [k.token(f"turn_{g}") for g in range(groups if groups > 1 else 0)]

    def begin(self, group: int) -> None:
        """The last group lets the first one begin."""
        if group == self.groups - 1:
            self.give(group)

    def take(self, group: int) -> None:
        """Wait for the turn."""
        if self.turn:
            self.turn[group - 1].take()

    def give(self, group: int) -> None:
        """Let the next group go on: its matrix instructions come after those that have issued."""
        if self.turn:
            self.turn[group].give()

    def end(self, group: int) -> None:
        """The first group takes the turn that is left over."""
        if group == 0:
            self.take(group)


class _Roles:
    """What the roles share, and the code of each. `g` numbers the groups that multiply."""

    def __init__(self, k: Builder, p: FiberGemm) -> None:
        self.k, self.p, self.memory = k, p, Memory(k, p)
        groups, tile = range(p.groups), (BLOCK_M, p.part_n)
        self.a = [k.pool(f"a_{g}", (BLOCK_M, TILE_K), p.dtype) for g in groups]
        self.total = [BitChannel(k, f"total_{g}", tile, "fp32") for g in groups]
        self.partial = [
            [k.registers(f"partial_{g}_{part}", tile, "fp32", warps=(GROUP, 1)) for part in range(p.parts)]
            for g in groups
        ]
        self.out = Store(k, p, self.memory, self.total)
        self.turns = Turns(k, p.groups)

    def multiply(self, item: Item, g: int) -> None:
        """Add up the tile in own registers; the last block's last step hands each part over."""
        k, memory, total = self.k, self.memory, self.total[g]
        for kb in k.range(item.k_blocks - 1):
            self._begin_block(g)
            for part, partial in enumerate(self.partial[g]):
                k.mma(partial, self.a[g][0], memory.b_columns(part), first=kb)
            self._end_block(g)
        self._begin_block(g)
        for part, partial in enumerate(self.partial[g]):
            k.mma(total.tensor, self.a[g][0], memory.b_columns(part), plus=partial)
            total.end_write()
        self._end_block(g)

    def _begin_block(self, g: int) -> None:
        self.memory.wait()
        self.turns.take(g)

    def _end_block(self, g: int) -> None:
        self.k.set_busy_bit(self.a[g][0], "empty")
        self.turns.give(g)
        self.memory.release()

    def fragments(self, item: Item) -> None:
        """Shared memory to the pool, for all groups."""
        for _ in self.k.range(item.k_blocks):
            self.memory.wait()
            for g, fragments in enumerate(self.a):
                self.k.load(fragments[0], self.memory.a_rows(g))
                self.k.set_busy_bit(fragments[0], "full")
            self.memory.release()


@kernel
def gemm_sm90_fiber(k: Builder, problem: FiberGemm) -> None:
    """Persistent over the tiles of C; every hand-over between roles is a pool tensor or an mbarrier."""
    k.flops, k.cluster_size = 2 * problem.m * problem.n * problem.k, problem.cluster
    k.work_items(problem.items(), clusters=problem.clusters)
    roles, groups = _Roles(k, problem), range(problem.groups)
    drain = {"drain": 1} if problem.by_bulk_copy else {}
    k.set_fiber_num(copy=1, **drain, **{f"multiply_{g}": GROUP for g in groups}, fragments=GROUP, store=GROUP)

    copies(k, problem, roles.memory)

    for g in groups:
        with k.role(f"multiply_{g}", window=g, registers=problem.tile_n // 2 + TURN_REGISTERS):
            roles.turns.begin(g)
            for item in k.work():
                roles.multiply(item, g)
            roles.turns.end(g)

    with k.role("fragments", window=0, registers=COPY_REGISTERS):
        for item in k.work():
            roles.fragments(item)

    with k.role("store", window=1, registers=problem.store_registers):
        for item in k.work():
            roles.out.store(item)
