"""Which keys a row of the FIBER-native attention of H100 does not see."""

from __future__ import annotations

from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.lang import Builder, Index, Item, RegisterHandle


def mask_keys(
    k: Builder,
    problem: AttentionProblem,
    config: FiberConfig,
    item: Item,
    scores: RegisterHandle,
    block: int,
    col: Index,
) -> None:
    """Leave out of a block's scores, from column `col` on, keys beyond the end and, if causal, behind the query."""
    k.mask(
        scores,
        row=item.row + block * BLOCK_M,
        col=col,
        causal=problem.causal,
        limit=problem.seqlen_kv,
        diagonal=problem.diagonal,
        row_divisor=planes(problem, config).pack,
    )
