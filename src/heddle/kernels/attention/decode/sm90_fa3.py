"""Decoding on H100, first launch: FlashAttention 3 over a part of the keys, query heads packed into the rows of a tile.

Producer, blocks and warp groups are those of the forward kernel; so are the tiles, of which the rows beyond the query
heads of a key and value head are padding. What differs is where keys end and what a warp group writes: O of its part in
fp32, straight from registers, and the base-2 logarithm of each row's sum (github.com/Dao-AILab/flash-attention at
0251105, hopper/epilogue_fwd.hpp and flash_fwd_launch_template.h).
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.errors import UserError
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.forward.sm90_fa3 import roles
from heddle.kernels.attention.forward.sm90_fa3_config import (
    GROUP_ROWS,
    STAGES,
    check_fa3,
    fa3_tile,
    shared_bytes,
    shares_weights,
    transposes,
)
from heddle.kernels.attention.forward.sm90_fa3_consumer import Consumer
from heddle.kernels.attention.forward.sm90_fa3_memory import Memory
from heddle.kernels.attention.forward.sm90_fa3_transpose import TransposedBlocks
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, Index, Item, kernel
from heddle.machine.spec import Machine

WIDE_HEAD_DIM, WIDE_KEYS = 256, 128
"""8-bit types of this head size: keys of a block. The forward kernel has half of it here, to make room for O."""


@kernel
def decode_split_fa3(k: Builder, problem: DecodeProblem, config: AttentionConfig, items: dict[str, list[int]]) -> None:
    """A CTA has one split of one key and value head and goes through its blocks from the last to the first."""
    k.flops = problem.packed.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    memory = SplitMemory(k, problem, config)
    roles(k, problem.packed, config, memory, items, SplitConsumer)


def split_config(problem: DecodeProblem) -> AttentionConfig:
    """Return the tile of the open kernel: that of the forward kernel, one tile a CTA, no cluster."""
    keys = WIDE_KEYS if transposes(problem.packed) and problem.head_dim == WIDE_HEAD_DIM else 0
    tile_m, tile_n = fa3_tile(problem.packed)
    return AttentionConfig(
        schedule="fa3",
        tile_m=tile_m,
        tile_n=keys or tile_n,
        stages=STAGES,
        groups=tile_m // GROUP_ROWS,
        order="launch",
        p_shared=shares_weights(problem.packed),
    )


def split_bytes(problem: DecodeProblem, config: AttentionConfig) -> int:
    """Return the shared memory of a CTA: without memory for O, which leaves from registers."""
    return shared_bytes(problem.packed, config, staged=False)


def check_split(problem: DecodeProblem, config: AttentionConfig, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the kernel."""
    if config.release or config.cluster > 1:
        raise UserError("decode_split_fa3 is the present release, without clusters", hint="leave both out")
    check_fa3(problem.packed, config, machine)


class SplitMemory(Memory):
    """Memory of a CTA that writes partial sums."""

    def __init__(self, k: Builder, problem: DecodeProblem, config: AttentionConfig) -> None:
        self.splits = problem.num_splits
        super().__init__(k, problem.packed, config, followed=False)

    def results(self, queries: tuple[int, int, int], problem: AttentionProblem, suffix: str) -> None:
        """Declare the partial O, of all splits side by side in a row, and the logarithms."""
        planes, rows, d = queries
        self.o_global = self.k.tensor("O_partial", (planes, rows, self.splits * d), "fp32", role="output")
        self.logs_global = self.k.tensor("LSE_partial", (planes, rows, self.splits), "fp32", role="output")

    def stage(self, values: TransposedBlocks, problem: AttentionProblem) -> None:
        """Nothing: O does not pass through shared memory."""

    def first_key(self, item: Item) -> Index:
        """First key of the split."""
        return item.first


class SplitConsumer(Consumer):
    """A warp group that writes what it has summed up, and the logarithm of the sum."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: AttentionConfig,
        memory: SplitMemory,
        group: int,
        items: Mapping[str, list[int]],
    ) -> None:
        super().__init__(k, problem, config, memory, group, items)
        self.parts = memory
        self.lse = k.registers(f"lse{group}", (GROUP_ROWS, 1), "fp32", warps=(GROUP_WARPS, 1))

    def store(self, item: Item) -> None:
        """Store O, which is divided by the sums already, and the logarithms; padding rows lie outside the tensors."""
        k, softmax, parts = self.k, self.softmax, self.parts
        row = item.row + self.group * GROUP_ROWS
        k.elementwise("log2", self.lse, softmax.total)
        k.elementwise("add", self.lse, self.lse, softmax.scaled)
        k.store(parts.logs_global[item.q_plane, row, item.split], self.lse)
        k.store(parts.o_global[item.q_plane, row, item.part], self.output)
