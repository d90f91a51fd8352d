"""The wefts that make P and dS in the FIBER-native backward pass of A100, and those that add dQ to memory.

Rows are keys, so statistics of queries lie along columns. dS leaves twice: as first operand of dK, and turned, as
second operand of dQ, through shared memory that nobody else touches.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm80_fiber_config import BLOCK_HEAD, BLOCK_KEYS, GROUP, FiberBackward80Config
from heddle.kernels.attention.backward.sm80_fiber_memory import Memory
from heddle.kernels.attention.backward.sm80_fiber_products import Channels
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, Index, Item, RegisterHandle

TURNED = 2
"""The barrier at which wefts that make dS meet those that turn it, where each subpartition has all of it."""
CHUNK = 16
"""Queries of which a block of dP is taken at a time."""
SLOPES_REGISTERS = 16
"""Registers of a weft that makes P and dS, beside P and statistics: a chunk of dP, addresses, packed elements."""


class Slopes:
    """P^T = 2^(S^T scale log2(e) - LSE) and dS^T = P^T (dP^T - row sums), block of keys by block of keys."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: FiberBackward80Config, memory: Memory, pool: Channels
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.pool = k, problem, config, memory, pool
        m, warps = config.tile_m, (GROUP, 1)
        self.weights = k.registers("p", (BLOCK_KEYS, m), "fp32", warps=warps)
        self.chunk = k.registers("chunk", (BLOCK_KEYS, CHUNK), "fp32", warps=warps)
        self.lse, self.dpsum = (
            k.registers(name, (1, m), "fp32", warps=warps, spread="columns") for name in ("lse", "sums")
        )
        self.shared = k.shared("slopes_shared", (BLOCK_KEYS, m), problem.dtype, stages=config.slope_stages)
        self.ring = k.ring("slopes_ring", config.slope_stages) if config.copies else None

    def tile(self, item: Item, has_plain: bool, has_masked: bool) -> None:
        """All queries of an item."""
        k, m = self.k, self.config.tile_m
        step = self._step
        if self.config.copies:
            step = self._step_ahead
            self._load(self.lse, 0, item, item.first + 0)
            self._load(self.dpsum, 1, item, item.first + 0)
        else:
            self.memory.meet_late()
        if has_masked:
            with k.when(item.masked):
                for block in k.range(item.masked, name="masked"):
                    step(item, item.first + block * m, masked=True)
        if has_plain:
            with k.when(item.plain):
                for block in k.range(item.plain, name="plain"):
                    step(item, item.edge + block * m, masked=False)

    def _step(self, item: Item, query: Index, masked: bool) -> None:
        memory = self.memory
        memory.meet()
        for vector, shared in zip((self.lse, self.dpsum), memory.statistics_shared, strict=True):
            self.k.load(vector, shared[memory.ring])
        memory.ring.advance()
        for b in range(self.config.groups):
            self._weigh(item, query, b, masked)
            self._differentiate()

    def _step_ahead(self, item: Item, query: Index, masked: bool) -> None:
        """The same with statistics from global memory, each loaded as soon as the one before has been used."""
        following, last = query + self.config.tile_m, self.config.groups - 1
        for b in range(self.config.groups):
            self._weigh(item, query, b, masked)
            if b == last:
                self._load(self.lse, 0, item, following)
            self._differentiate()
            if b == last:
                self._load(self.dpsum, 1, item, following)

    def _load(self, vector: RegisterHandle, which: int, item: Item, query: Index) -> None:
        self.k.load(vector, self.memory.statistics[which][item.plane, 0, query])

    def _weigh(self, item: Item, query: Index, b: int, masked: bool) -> None:
        k, pool, scale = self.k, self.pool, (self.problem.scale * LOG2_E,)
        # in two operations: the first one alone reads scores, which may be overwritten once they have been given back
        if masked:
            for col in range(0, self.config.tile_m, CHUNK):
                k.elementwise("copy", self.chunk, pool.scores.columns(col, CHUNK))
                self._mask(item, query + col, b)
                part, lse = self.weights.columns(col, CHUNK), self.lse.columns(col, CHUNK)
                k.elementwise("scaled_sub", part, self.chunk, lse, scalars=scale)
        else:
            k.elementwise("scaled_sub", self.weights, pool.scores, self.lse, scalars=scale)
        k.set_busy_bit(pool.scores, "empty")
        k.elementwise("exp2", self.weights, self.weights)
        k.elementwise("cast", pool.weights, self.weights)
        k.set_busy_bit(pool.weights, "full")

    def _mask(self, item: Item, query: Index, b: int) -> None:
        """Leave out keys beyond the end and, if causal, queries before the key."""
        self.k.mask(
            self.chunk,
            row=item.col + b * BLOCK_KEYS,
            col=query,
            causal=self.problem.causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
            transposed=True,
        )

    def _differentiate(self) -> None:
        k, pool = self.k, self.pool
        for col in range(0, self.config.tile_m, CHUNK):
            part = self.weights.columns(col, CHUNK)
            k.elementwise("sub", self.chunk, pool.products.columns(col, CHUNK), self.dpsum.columns(col, CHUNK))
            k.elementwise("mul", part, part, self.chunk)
        k.set_busy_bit(pool.products, "empty")
        k.elementwise("cast", pool.slopes, self.weights)
        k.set_busy_bit(pool.slopes, "full")
        if self.ring is not None:
            k.store(self.shared[self.ring], self.weights)
            k.sync(TURNED, warps=2 * GROUP)
            self.ring.advance()
            return
        k.store(self.shared[:], self.weights)
        k.load(pool.turned, self.shared[:])
        k.set_busy_bit(pool.turned, "full")

    def load_turned(self, item: Item) -> None:
        """The wefts that bring dS of all keys to each subpartition, turned, when it has been stored."""
        k, turned, ring = self.k, self.pool.turned, self.ring
        assert ring is not None
        for _ in k.range(item.steps, name="turn_slopes"):
            for _b in range(self.config.groups):
                k.sync(TURNED, warps=2 * GROUP)
                k.load(turned, self.shared[ring], each=True)
                k.set_busy_bit(turned, "full")
                ring.advance()


def slopes_registers(config: FiberBackward80Config) -> int:
    """Registers of a weft that makes P and dS: P, two statistics of the queries, and the rest."""
    return config.tile_m // 2 + 2 * config.tile_m // 4 + SLOPES_REGISTERS


def add_dq(
    k: Builder, problem: AttentionProblem, config: FiberBackward80Config, memory: Memory, pool: Channels, item: Item
) -> None:
    """Add dQ^T of all queries of an item to memory, turned, word by word."""
    for block in k.range(item.steps, name="add"):
        row = item.first + block * config.tile_m
        for col in list(range(0, problem.head_dim, BLOCK_HEAD)) * (config.groups if config.copies else 1):
            k.store(memory.dq[item.plane, row, col], pool.dq, reduce=True, transposed=True)
            k.set_busy_bit(pool.dq, "empty")
