"""Which of today's kernels decode: the one asked for, else the best known for the GPU and the sizes; and its splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.errors import UserError
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.decode.fiber_parts import ROWS
from heddle.kernels.attention.decode.kernel import (
    DECODE_SPLIT,
    DECODE_SPLIT_FA3,
    DECODE_SPLIT_FA4,
    DECODE_WHOLE_FA4,
    DecodeSplit,
    DecodeSplitFA3,
    DecodeSplitFA4,
)
from heddle.kernels.attention.decode.shape import split_count, split_count_fa3, split_count_fa4, used_splits
from heddle.kernels.attention.decode.sm100_fa4 import HEAD_DIMS
from heddle.machine.spec import Machine

Launches = tuple[DecodeSplit, str]
"""The launch that goes through a part of the keys, and the kernel that goes through all."""

OLDEST: Launches = (DECODE_SPLIT, "attention_fa2")
"""`mha_fwd_kvcache` of FlashAttention 2 forces its split kernel for all keys, too, where a key is appended or the cache
is paged or indexed (csrc/flash_attn/flash_api.cpp)."""
NEWEST: Mapping[str, Launches] = {
    "sm_80": OLDEST,
    "sm_90": (DECODE_SPLIT_FA3, "attention"),
    "sm_100": (DECODE_SPLIT_FA4, DECODE_WHOLE_FA4.name),
}
"""By architecture."""
CHOICES = ("auto", "fa2", "fa4")


def chosen(machine: Machine, params: Mapping[str, Any]) -> Launches:
    """Return the launches of today; `params`: those of `decode_attention`. Raises UserError where there are none.

    FlashAttention 4's chain through five roles and 128 rows is long for a CTA of one block of keys, where nothing goes
    on beside it: four warps of the code for A100 with 64 rows are faster. From two blocks on it is the other way round,
    unless the code for A100 cuts the same keys into single blocks and has an SM for each.
    """
    asked, newest = params["implementation"], NEWEST[machine.architecture]
    decodes = newest[0] is DECODE_SPLIT_FA4 and params["head_dim"] in HEAD_DIMS
    if asked == "fa4" and not decodes:
        raise UserError(
            f"FlashAttention 4 decodes on B200, head sizes {' and '.join(map(str, HEAD_DIMS))}; got "
            f"{machine.name}, {params['head_dim']}",
            hint="implementation=auto takes the best that is known here",
        )
    if asked == "fa2" or (newest[0] is DECODE_SPLIT_FA4 and not decodes):
        return OLDEST
    return OLDEST if asked == "auto" and decodes and _by_blocks(machine, params) else newest


def _by_blocks(machine: Machine, params: Mapping[str, Any]) -> bool:
    """Whether the code for A100 is the faster one on B200: a CTA of either has one block of keys."""
    names = ("batch", "heads_q", "heads_kv", "seqlen_kv", "head_dim")
    one = {**{name: params[name] for name in names}, "num_splits": 1}

    def blocks_and_splits(split: DecodeSplit) -> tuple[int, int]:
        return split.problem(one).blocks, split_number(split, one, params, machine, native=False)

    blocks, splits = blocks_and_splits(DECODE_SPLIT_FA4)
    if splits == blocks:
        return True
    blocks, splits = blocks_and_splits(DECODE_SPLIT)
    return splits == blocks and DECODE_SPLIT.tiles(DECODE_SPLIT.problem(one)) * splits <= machine.sms


def split_number(
    split: DecodeSplit, one: Mapping[str, Any], params: Mapping[str, Any], machine: Machine, native: bool
) -> int:
    """Return the splits that have keys; `one`: parameters of the launch with all keys in one split.

    `native`: with FIBER there is one FIBER-thread an SM, for which the rule of FlashAttention 3 fits.
    """
    problem = split.problem(one)
    if not (asked := params["num_splits"]):
        tiles = problem.planes * ceil_div(problem.group, ROWS) if native else split.tiles(problem)
        if native or isinstance(split, DecodeSplitFA3):
            asked = split_count_fa3(tiles, machine.sms, problem.blocks)
        elif isinstance(split, DecodeSplitFA4):
            asked = split_count_fa4(tiles, machine.sms, problem.blocks)
        else:
            asked = split_count(tiles, machine.sms, problem.blocks, params["release"])
    return used_splits(problem.blocks, asked)
