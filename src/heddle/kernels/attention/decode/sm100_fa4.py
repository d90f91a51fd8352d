"""Decoding on B200, first launch: FlashAttention 4 over a part of the keys, query heads packed into the rows of a tile.

Roles are those of the forward kernel, with one tile of 128 rows where that has two: its next scores follow the values
of the block before, so that one chain goes from block to block while copies run ahead through the whole of shared
memory. The rows beyond the query heads of a key and value head are padding. The correction warps write O straight from
registers: of a part in fp32, of all keys in the type of Q (github.com/Dao-AILab/flash-attention at 0251105,
flash_attn/cute/flash_fwd_sm100.py and interface.py). More than 128 query heads take several tiles, each of which goes
through the keys; the open kernel then has two in a CTA.
"""

from __future__ import annotations

from heddle.errors import UserError
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.decode.sm100_fa4_roles import InTurnProducts, SplitCorrection, SplitSoftmax, load
from heddle.kernels.attention.forward.sm100_fa4 import REGISTERS
from heddle.kernels.attention.forward.sm100_fa4_config import BARRIER_BYTES, POOL_BYTES, ROWS
from heddle.kernels.attention.forward.sm100_fa4_memory import Memory, Tile
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, GlobalBox, GlobalHandle, Item, kernel
from heddle.machine.spec import Machine

HEAD_DIMS = (64, 128)
"""The open kernel splits no keys of larger heads."""
SHARES_QUERY = 128
"""From this head size on O of a part is staged where Q was, in the open kernel, which leaves more for K and V."""

Items = dict[str, list[int]]


@kernel
def decode_split_fa4(k: Builder, problem: DecodeProblem, config: AttentionConfig, items: Items) -> None:
    """A CTA has one split of one key and value head and goes through its blocks from the last to the first."""
    _roles(k, problem, config, SplitMemory(k, problem, config), items)


@kernel
def decode_whole_fa4(k: Builder, problem: DecodeProblem, config: AttentionConfig, items: Items) -> None:
    """The same through all keys; O is written as it is."""
    _roles(k, problem, config, TileMemory(k, problem.packed, config), items)


def _roles(k: Builder, problem: DecodeProblem, config: AttentionConfig, memory: TileMemory, items: Items) -> None:
    """Softmax, correction, products and loads, each in warps of its own."""
    k.flops = problem.packed.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    has = {name: any(items[name]) for name in ("more", "only", "masked", "rescaled", "plain")}
    softmax_registers, correction_registers, other_registers = REGISTERS[problem.head_dim]
    softmax = SplitSoftmax(k, problem.packed, config, memory, memory.tiles[0], late=False)
    with k.role("softmax", warps=GROUP_WARPS, registers=softmax_registers):
        memory.meet()
        for item in k.work():
            softmax.run(item, has)
            softmax.store_logs(item)
    with k.role("correction", warps=GROUP_WARPS, registers=correction_registers):
        SplitCorrection(k, problem.packed, memory).run(has)
    with k.role("matrix", warps=1, registers=other_registers):
        InTurnProducts(k, config, memory).run(has)
    with k.role("load", warps=1, registers=other_registers):
        load(k, config, memory, has["more"])


class TileMemory(Memory):
    """Memory of a CTA with one work item, one tile of Q, one slot for its scores, and O that is not staged.

    `logs_global`: logarithms of sums, where there are several splits.
    """

    several = False
    logs_global: GlobalHandle | None = None

    def has_early_scores(self) -> bool:
        """No: the next scores overwrite P, once its values are added."""
        return False

    def stage(self, tile: Tile, problem: AttentionProblem) -> None:
        """Nothing: O does not pass through shared memory."""

    def output(self, item: Item, col: int) -> GlobalBox:
        """Return O of the tile from a column on."""
        return self.o_global[item.q_plane, item.row, col]


class SplitMemory(TileMemory):
    """Memory of a CTA that writes partial sums."""

    def __init__(self, k: Builder, problem: DecodeProblem, config: AttentionConfig) -> None:
        self.splits = problem.num_splits
        super().__init__(k, problem.packed, config)

    def results(self, queries: tuple[int, int, int], problem: AttentionProblem, suffix: str) -> None:
        """Declare the partial O, of all splits side by side in a row, and the logarithms."""
        planes, rows, d = queries
        self.o_global = self.k.tensor("O_partial", (planes, rows, self.splits * d), "fp32", role="output")
        self.logs_global = self.k.tensor("LSE_partial", (planes, rows, self.splits), "fp32", role="output")

    def output(self, item: Item, col: int) -> GlobalBox:
        """Return O of the split."""
        return self.o_global[item.q_plane, item.row, item.part + col]


def tile_of(problem: DecodeProblem) -> AttentionConfig:
    """Return the tile of the open kernel; K and V take turns in what Q and O leave of shared memory."""
    d, split = problem.head_dim, problem.num_splits > 1
    query = ROWS * d * problem.packed.element_bytes
    out = ROWS * d * 4 if split else query
    kept = max(query, out) if split and d >= SHARES_QUERY else query + out
    stages = (POOL_BYTES - kept) // query
    return AttentionConfig(schedule="fa4", tile_m=ROWS, tile_n=ROWS, stages=stages, groups=1, order="launch")


def shared_bytes(problem: DecodeProblem, config: AttentionConfig) -> int:
    """Return the shared memory of a CTA: Q, the stages of K and V, row factors, barriers."""
    rows = config.tile_m + config.stages * config.tile_n
    return rows * problem.head_dim * problem.packed.element_bytes + config.tile_m * 4 + BARRIER_BYTES


def check_tile(problem: DecodeProblem, config: AttentionConfig, machine: Machine) -> None:
    """Raise UserError if the kernel cannot run a problem or a configuration."""
    if problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"FlashAttention 4 decodes head sizes {' and '.join(map(str, HEAD_DIMS))}, got {problem.head_dim}",
            hint=f"implementation=fa2 runs the code for A100 on {machine.name}",
        )
    if (config.tile_m, config.tile_n, config.groups, config.cluster) != (ROWS, ROWS, 1, 1) or config.stages < 2:
        raise UserError(
            f"FlashAttention 4 decodes with one tile of {ROWS} rows, blocks of {ROWS} keys and 2 stages or more; got "
            f"{config.label()}",
            hint=f"tile_m={ROWS}, tile_n={ROWS}, groups=1 and the stages that shared memory has room for",
        )


def tile_items(items: Items, config: AttentionConfig) -> Items:
    """Return work items of decoding with what the roles ask: blocks in which O is rescaled, and single blocks."""
    rescaled = [min(config.rescaled, more) for more in items["more"]]
    plain = [more - some for more, some in zip(items["more"], rescaled, strict=True)]
    return items | {"only": [int(not more) for more in items["more"]], "rescaled": rescaled, "plain": plain}
