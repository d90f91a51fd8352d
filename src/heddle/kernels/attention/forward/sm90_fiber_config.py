"""Configurations of the FIBER-native attention of H100."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem

BLOCK_M = 64
"""Rows of a block: 16 for each subpartition, the m of a weft-level matrix instruction."""
BLOCKS = 2
"""Blocks of a FIBER-thread: one is exponentiated while the other multiplies."""
WIDE_HEAD_DIM = 256
"""Head size at which the outputs of two blocks do not fit one window."""
SCORE_BYTES = 4
"""Of a score and of a factor: fp32."""
BARRIER_BYTES = 2048
"""Shared memory set aside for mbarriers and the alignment of the first tile."""
Exchange = Literal["bits", "barriers", "shared"]
"""How roles hand tensors to each other: registers with full and empty bits, registers with barriers, shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberConfig(AttentionConfig):
    """`groups` blocks of 64 rows a FIBER-thread, each with softmax wefts and value wefts of its own.

    `query_stages`: tiles of Q in shared memory. `output_stages`: blocks of O there. `pooled`: blocks whose Q the
    matrix instructions take from the pool; they take that of others from shared memory (with bits only). `exchange`:
    for machines that lack features, see `Exchange`.
    """

    query_stages: int
    output_stages: int
    pooled: int = 0
    exchange: Exchange = "bits"

    def label(self) -> str:
        """Return a short name, as in `fiber 128x128 g2 s2 q2 o2 pool1 c2 static`."""
        parts = [f"fiber {self.tile_m}x{self.tile_n}", f"g{self.groups}", f"s{self.stages}", f"q{self.query_stages}"]
        parts += [f"o{self.output_stages}", f"pool{self.pooled}"]
        parts += [f"c{self.cluster}"] if self.cluster > 1 else []
        parts += ["packed"] if self.packed else []
        parts += [self.exchange] if self.exchange != "bits" else []
        return " ".join([*parts, self.order])


def softmax_window(problem: AttentionProblem, block: int) -> int:
    """Window of a block's softmax wefts: with wide heads the other one is full of scores and an output."""
    return 1 if problem.head_dim >= WIDE_HEAD_DIM else block % 2


def values_window(problem: AttentionProblem, block: int) -> int:
    """Window of the wefts that add up a block's output."""
    return block if problem.head_dim >= WIDE_HEAD_DIM else 1


def shared_bytes(problem: AttentionProblem, config: FiberConfig) -> int:
    """Return the shared memory of a FIBER-thread: Q, O on its way out, stages of K and V, barriers."""
    rows = config.query_stages * config.tile_m + config.output_stages * BLOCK_M + 2 * config.stages * config.tile_n
    total = rows * problem.head_dim * problem.element_bytes + BARRIER_BYTES
    if config.exchange == "shared":
        total += config.tile_m * (config.tile_n * (SCORE_BYTES + problem.element_bytes) + SCORE_BYTES)
    return total
