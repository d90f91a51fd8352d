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

from heddle.kernels.gemm.sm90_fiber_memory import Memory
from heddle.kernels.gemm.sm90_fiber_shape import BLOCK_M, GROUP, TILE_K, FiberGemm
from heddle.lang import Builder, Item, RegisterHandle, kernel

COPY_REGISTERS = 4
"""Registers of a role that copies."""
TURN_REGISTERS = 4
"""Registers of a role that multiplies, beside its tile."""


class _Turns:
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
        self.total = [k.pool(f"total_{g}", tile, "fp32") for g in groups]
        self.partial = [
            [k.registers(f"partial_{g}_{part}", tile, "fp32", warps=(GROUP, 1)) for part in range(p.parts)]
            for g in groups
        ]
        self.out = self._registers("out", p.part_n, p.dtype) if p.epilogue == "none" else None
        self.sums = None if self.out is not None else self._registers("sums", p.columns, "fp32")
        self.turns = _Turns(k, p.groups)

    def _registers(self, name: str, cols: int, dtype: str) -> RegisterHandle:
        return self.k.registers(name, (BLOCK_M, cols), dtype, warps=(GROUP, 1))

    def multiply(self, item: Item, g: int) -> None:
        """Add up the tile in own registers; the last block's last step hands each part over."""
        k, memory, total = self.k, self.memory, self.total[g][0]
        for kb in k.range(item.k_blocks - 1):
            self._begin_block(g)
            for part, partial in enumerate(self.partial[g]):
                k.mma(partial, self.a[g][0], memory.b_columns(part), first=kb)
            self._end_block(g)
        self._begin_block(g)
        for part, partial in enumerate(self.partial[g]):
            k.mma(total, self.a[g][0], memory.b_columns(part), plus=partial)
            k.set_busy_bit(total, "full")
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

    def store(self, item: Item) -> None:
        """Pool to the way out, in the order in which parts are handed over."""
        for part in range(self.p.parts):
            for g, total in enumerate(self.total):
                self._store_part(item, g, part, total[0])

    def _store_part(self, item: Item, g: int, part: int, total: RegisterHandle) -> None:
        k, memory = self.k, self.memory
        if self.out is not None:
            k.elementwise("cast", self.out, total)
            k.set_busy_bit(total, "empty")
            memory.begin_chunk()
            memory.put(item, g, part, self.out)
        else:
            memory.begin_chunk()
            self._finish(item, g, part, total)
        memory.end_chunk()

    def _finish(self, item: Item, g: int, part: int, total: RegisterHandle) -> None:
        """The epilogue; tiles of V have a copy of the code without rotation, as what is given back is read in one."""
        if not self.p.problem.rotated:
            self._columns(item, g, part, total, rotated=False)
            return
        with self.k.when(item.rotated):
            self._columns(item, g, part, total, rotated=True)
        with self.k.when(item.plain):
            self._columns(item, g, part, total, rotated=False)

    def _columns(self, item: Item, g: int, part: int, total: RegisterHandle, *, rotated: bool) -> None:
        """Some columns at a time, with the next cosines and sines on their way."""
        k, p, memory, epilogue = self.k, self.p, self.memory, self.memory.epilogue
        assert self.sums is not None
        first, width = part * p.part_n, p.columns

        def load(col: int) -> None:
            if rotated:
                epilogue.load(memory.row(item, g), item.head_col, first + col)

        load(0)
        for col in range(0, p.part_n, width):
            if col + width < p.part_n:
                load(col + width)
            k.elementwise("copy", self.sums, total.columns(col, width))
            if col + width == p.part_n:
                k.set_busy_bit(total, "empty")
            done = epilogue.apply(self.sums, first + col, rotated=rotated)
            memory.put(item, g, part, done, col // (1 + p.problem.gated))


@kernel
def gemm_sm90_fiber(k: Builder, problem: FiberGemm) -> None:
    """Persistent over the tiles of C; every hand-over between roles is a pool tensor or an mbarrier."""
    k.flops, k.cluster_size = 2 * problem.m * problem.n * problem.k, problem.cluster
    k.work_items(problem.items(), clusters=problem.clusters)
    roles, groups = _Roles(k, problem), range(problem.groups)
    memory, drain = roles.memory, {"drain": 1} if problem.by_bulk_copy else {}

    k.set_fiber_num(copy=1, **drain, **{f"multiply_{g}": GROUP for g in groups}, fragments=GROUP, store=GROUP)

    with k.role("copy", window=0, registers=COPY_REGISTERS):
        memory.meet()
        for item in k.work():
            memory.load(item)
        memory.part()

    if drain:
        with k.role("drain", window=1, registers=COPY_REGISTERS):
            for item in k.work():
                memory.drain(item)

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
            roles.store(item)
