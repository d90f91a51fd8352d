"""Tiles, hand-overs and windows of the FIBER-native backward pass of attention on H100, and what they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from heddle.ir.warp_fiber import SUBPARTITIONS, WINDOW
from heddle.kernels.attention.shape import AttentionProblem

BLOCK = 64
"""Rows of a block: 16 for each subpartition, the m of a weft-level matrix instruction."""
HALVES = 2
"""Blocks of keys of a FIBER-thread: while one is differentiated, products of the other run."""
TILE_N = HALVES * BLOCK
GRADIENT_STAGES = 2
"""Blocks of dS in shared memory: one is written while dQ of the one before is multiplied."""
ACCUMULATOR_BYTES = 4
"""Of an element of dQ on its way out and of a row statistic: fp32."""
BARRIER_BYTES = 2048
"""Shared memory set aside for mbarriers and the alignment of the first tile."""

LANES_OF_SM = 128
"""Elements of 32 bits in a vector register of each subpartition."""
COPY_REGISTERS = 4
"""Registers of a role that copies."""
ROWS_REGISTERS = 16
"""Registers of the role that makes P and dS, beside its tiles: addresses, what is packed."""
KEY_REGISTERS = 4
"""Registers of a role that makes dK or dV, beside its sums: addresses, and what is packed on the way to memory."""
QUERY_REGISTERS = 4
"""The same of the role that makes dQ, which is not packed."""
QUAD = 4
"""Registers of a window that cannot be used: the last of them cannot be named (heddle.passes.place_pool)."""
TOKENS = 4
"""Registers of the tokens that a window's roles give."""

Reduction = Literal["bulk", "atomics"]
"""How dQ is added to memory: by bulk copies from shared memory, or by vector reductions from registers."""
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
Order = Literal["static", "dynamic"]
Scope = Literal["sm", "subpartition", "role"]
"""Who reads the row statistics in registers: wefts of all subpartitions or of one; or each role loads its own."""
STATISTICS = 2
"""Row statistics of a query: LSE and the row sum."""
ROW_COLUMNS = 4
"""Of a row vector beside fragments a lane has one column of each so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberBackward90Config:
    """How the problem is cut: a FIBER-thread keeps 128 keys of a query head and goes through its queries.

    `tile_m`: queries of a step. `stages`: blocks of Q and of dO in shared memory, `key_stages`: blocks of K. `slots`:
    places in the pool for the P and dS of a block of keys; with one, both blocks take turns in it. `parts`: products
    that dQ of a step is made in. `dq`: how dQ is added up. `order`: who takes which tile. `statistics`: with "sm" a
    subpartition has a quarter of the row statistics, with "subpartition" all of them; "role": without bits, see
    `sm90_fiber_phased`.
    """

    tile_m: int
    stages: int = 2
    key_stages: int = 2
    slots: int = 2
    parts: int = 2
    dq: Reduction = "atomics"
    order: Order = "static"
    statistics: Scope = "sm"

    @property
    def tile_n(self) -> int:
        """Keys of a FIBER-thread."""
        return TILE_N

    def label(self) -> str:
        """Return a short name, as in `fiber-bwd 64x128 s2 k2 slots2 parts2 bulk static`."""
        counts = f"s{self.stages} k{self.key_stages} slots{self.slots} parts{self.parts}"
        own = {"sm": "", "subpartition": " own", "role": " phased"}[self.statistics]
        return f"fiber-bwd {self.tile_m}x{self.tile_n} {counts} {self.dq}{own} {self.order}"


def dq_shape(problem: AttentionProblem, config: FiberBackward90Config) -> tuple[int, int]:
    """Return rows and columns of a product for dQ: blocks of queries, or of one block some of the columns."""
    if config.tile_m > BLOCK:
        return config.tile_m // config.parts, problem.head_dim
    return config.tile_m, problem.head_dim // config.parts


def shared_bytes(problem: AttentionProblem, config: FiberBackward90Config) -> int:
    """Return the shared memory of a FIBER-thread: K, V, stages of Q, dO, dS and row statistics, dQ on its way out."""
    rows = (config.key_stages + 1) * config.tile_n + 2 * config.stages * config.tile_m
    elements = rows * problem.head_dim + GRADIENT_STAGES * config.tile_m * config.tile_n
    accumulators = 2 * config.stages * config.tile_m
    accumulators += config.tile_m * problem.head_dim if config.dq == "bulk" else 0
    return elements * problem.element_bytes + accumulators * ACCUMULATOR_BYTES + BARRIER_BYTES


def registers(problem: AttentionProblem, config: FiberBackward90Config) -> dict[str, int]:
    """Return the own registers of each role, vector registers of a subpartition."""
    tile = BLOCK * config.tile_m // LANES_OF_SM
    head = BLOCK * problem.head_dim // LANES_OF_SM
    rows, cols = dq_shape(problem, config)
    own = {
        "load": COPY_REGISTERS,
        "add": COPY_REGISTERS,
        "statistics": COPY_REGISTERS,
        "rows": 2 * tile + ROWS_REGISTERS + (pooled_statistics(config) if config.statistics == "role" else 0),
    }
    values = {"dv0": head, "dv1": head} if config.slots > 1 else {"dv": HALVES * head}
    own |= {name: count + KEY_REGISTERS for name, count in (values | {"dk": HALVES * head}).items()}
    return own | {"dq": rows * cols // LANES_OF_SM + QUERY_REGISTERS}


def pooled(config: FiberBackward90Config) -> int:
    """Return the registers of P and dS in the pool."""
    return 2 * config.slots * BLOCK * config.tile_m // LANES_OF_SM // 2


def pooled_statistics(config: FiberBackward90Config) -> int:
    """Return the registers of row statistics in the pool, of a subpartition."""
    whole = STATISTICS * config.tile_m // ROW_COLUMNS
    return whole // SUBPARTITIONS if config.statistics == "sm" else whole


def windows(problem: AttentionProblem, config: FiberBackward90Config) -> dict[str, int]:
    """Return the window of each role: P and dS are in that of the role that makes them, with as much of dV as fits.

    Row statistics that lie whole in every subpartition leave no room for copying roles beside dV.
    """
    own = registers(problem, config)
    copies = 0 if config.slots > 1 else 1
    place = dict.fromkeys(own, 1) | {"rows": 0, "load": copies, "add": copies, "statistics": copies}
    if config.statistics != "sm":
        place |= {"load": 1, "add": 1}
    values = "dv0" if config.slots > 1 else "dv"
    if own["rows"] + pooled(config) + own[values] + TOKENS <= WINDOW - QUAD:
        place[values] = 0
    return place
