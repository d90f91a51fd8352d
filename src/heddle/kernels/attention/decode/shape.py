"""Problem of decoding: attention of one query a sequence, its keys split over CTAs, and how many splits there are.

Tiles and heuristics are those of FlashAttention 2, 3 and 4 (github.com/Dao-AILab/flash-attention at 0251105,
csrc/flash_attn/flash_api.cpp and flash_fwd_launch_template.h; hopper/heuristics.h and flash_api.cpp;
flash_attn/cute/interface.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionProblem

SPLIT_ROWS = 64
"""Rows of a tile of FlashAttention 2's split kernel: query heads of a key and value head, the others padding."""
SPLIT_KEYS = {64: 256, 128: 128, 256: 64}
"""Keys of a block of FlashAttention 2's split kernel, by head size."""
WHOLE_BLOCKS = 4
"""FlashAttention 3 and 4 do not split so few blocks of keys."""
MOST_SPLITS = 128
GOOD_SHARE = 0.85
"""The fewest splits are taken whose last wave is this full, as a share of the best."""
FULL_SHARE = 0.8
"""Of the places of CTAs that must be taken for keys to stay whole."""
CTAS_PER_SM = {0: 2, 1: 1}
"""CTAs of the split kernel that the heuristic counts on an SM, now and in releases before April 2024 (9eb3d099)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeProblem:
    """One query a sequence; query head h reads key and value head h // (heads_q / heads_kv). `num_splits`: of keys.

    `block_keys`: keys of a block, which no split cuts; 0: the same as FlashAttention 2.
    """

    batch: int
    heads_q: int
    heads_kv: int
    seqlen_kv: int
    head_dim: int
    dtype: str
    num_splits: int
    block_keys: int = 0

    @property
    def group(self) -> int:
        """Query heads of a key and value head: the rows of a tile."""
        return self.heads_q // self.heads_kv

    @property
    def packed(self) -> AttentionProblem:
        """The same as attention whose queries are the query heads of a key and value head."""
        return AttentionProblem(
            batch=self.batch, heads_q=self.heads_kv, heads_kv=self.heads_kv, seqlen_q=self.group,
            seqlen_kv=self.seqlen_kv, head_dim=self.head_dim, causal=False, dtype=self.dtype,
        )  # fmt: skip

    @property
    def planes(self) -> int:
        """Sequences times key and value heads."""
        return self.batch * self.heads_kv

    @property
    def rows(self) -> int:
        """Rows of O: sequences times query heads."""
        return self.batch * self.heads_q

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.block_keys or SPLIT_KEYS[self.head_dim]

    @property
    def blocks(self) -> int:
        """Blocks of keys."""
        return ceil_div(self.seqlen_kv, self.keys)

    @property
    def blocks_per_split(self) -> int:
        """Blocks of every split but the last."""
        return ceil_div(self.blocks, self.num_splits)


def used_splits(blocks: int, num_splits: int) -> int:
    """Return how many of so many splits have keys: each takes equally many blocks, as long as there are any."""
    return ceil_div(blocks, ceil_div(blocks, min(num_splits, blocks)))


def split_count(tiles: int, sms: int, blocks: int, release: int) -> int:
    """Return the splits that FlashAttention 2 takes: the fewest with nearly the fullest last wave of CTAs.

    One where tiles alone fill the chip. A count is skipped that cuts blocks as the count before does.
    """
    places = CTAS_PER_SM[release] * sms
    if tiles >= FULL_SHARE * places:
        return 1
    counts = range(1, min(MOST_SPLITS, places, blocks) + 1)
    return _fewest([n for n in counts if n == 1 or ceil_div(blocks, n) != ceil_div(blocks, n - 1)], tiles, places)


def split_count_fa3(tiles: int, sms: int, blocks: int) -> int:
    """Return the splits that FlashAttention 3 takes: the same of every count, with one CTA an SM, few blocks whole."""
    if tiles >= FULL_SHARE * sms or blocks <= WHOLE_BLOCKS:
        return 1
    return _fewest([*range(1, min(MOST_SPLITS, sms, blocks) + 1)], tiles, sms)


def split_count_fa4(tiles: int, sms: int, blocks: int) -> int:
    """Return the splits that FlashAttention 4 takes: as many as there are SMs for each tile, few blocks whole."""
    if blocks <= WHOLE_BLOCKS:
        return 1
    return max(1, min(sms // tiles, MOST_SPLITS, blocks))


def _fewest(counts: list[int], tiles: int, places: int) -> int:
    """Return the first count whose last wave is nearly as full as the best."""
    full = {n: tiles * n / places / ceil_div(tiles * n, places) for n in counts}
    return next(n for n in counts if full[n] >= GOOD_SHARE * max(full.values()))
