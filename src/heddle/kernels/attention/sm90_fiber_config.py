"""Configurations of the FIBER-native attention of H100."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.shape import AttentionConfig

BLOCK_M = 64
"""Rows of a block: 16 for each subpartition, the m of a weft-level matrix instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberConfig(AttentionConfig):
    """`groups` blocks of 64 rows a FIBER-thread, each with softmax wefts of its own.

    `query_stages`: tiles of Q in shared memory.
    """

    query_stages: int = 2
