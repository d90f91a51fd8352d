"""The kernels around the main backward kernel of FlashAttention 3, which go through rows once.

Known from the sources (github.com/Dao-AILab/flash-attention, hopper/flash_bwd_preprocess_kernel.h and
flash_bwd_postprocess_kernel.h at 0251105): before the main kernel LSE becomes a logarithm to base 2, beside the row
sums and the cleared accumulator of dQ; with grouped queries dK and dV are accumulated in fp32, too, in memory that is
cleared before (a call of the framework), and rounded afterwards (by one launch each; here one does both).
"""

from __future__ import annotations

from heddle.kernels.attention.backward.rows import WARPS, Items, RowTiles, sum_products
from heddle.kernels.attention.backward.tensors import padded_queries
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, kernel


@kernel
def attention_bwd_preprocess_fa3(k: Builder, problem: AttentionProblem, rows: int, items: Items) -> None:
    """Write sum of dO * O over each row, LSE to base 2 (both padded), and zeros to the accumulator of dQ."""
    planes, queries, d = problem.batch * problem.heads_q, problem.seqlen_q, problem.head_dim
    k.flops = 2 * planes * queries * d
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    o, do = (k.tensor(name, (planes, queries, d), problem.dtype) for name in ("O", "dO"))
    lse_given = k.tensor("LSE", (planes, queries, 1), "fp32")
    statistics = (planes, padded_queries(problem), 1)
    dpsum, lse = (k.tensor(name, statistics, "fp32", role="output") for name in ("dPsum", "LSE_log2"))
    accumulator = k.tensor("dQ_accum", (planes, queries, d), "fp32", role="output")
    tiles = RowTiles(k, rows, d)
    loaded = [tiles.tile(name, problem.dtype) for name in ("o", "do")]
    wide = [tiles.tile(f"wide_{name}", "fp32") for name in ("o", "do")]
    total, logarithm = (tiles.tile(name, "fp32", column=True) for name in ("total", "logarithm"))
    with k.role("rows", warps=WARPS, registers=tiles.registers(12)):
        for item in k.work():
            k.load(logarithm, lse_given[item.plane, item.row, 0])
            sum_products(k, loaded, wide, total, [source[item.plane, item.row, 0] for source in (o, do)])
            k.store(dpsum[item.plane, item.row, 0], total)
            k.elementwise("scale", logarithm, logarithm, scalars=(LOG2_E,))
            k.store(lse[item.plane, item.row, 0], logarithm)
            k.fill(wide[1])
            k.store(accumulator[item.plane, item.row, 0], wide[1])


@kernel
def attention_bwd_clear_keys(k: Builder, problem: AttentionProblem, rows: int, items: Items) -> None:
    """Write zeros to the accumulators of dK and dV."""
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    shape = (problem.batch * problem.heads_kv, problem.seqlen_kv, problem.head_dim)
    targets = [k.tensor(f"{name}_accum", shape, "fp32", role="output") for name in ("dK", "dV")]
    tiles = RowTiles(k, rows, problem.head_dim)
    zeros = tiles.tile("zeros", "fp32")
    with k.role("rows", warps=WARPS, registers=tiles.registers(4)):
        for item in k.work():
            k.fill(zeros)
            for target in targets:
                k.store(target[item.plane, item.row, 0], zeros)


@kernel
def attention_bwd_convert_keys(k: Builder, problem: AttentionProblem, rows: int, items: Items) -> None:
    """Write dK and dV, their accumulators rounded."""
    shape = (problem.batch * problem.heads_kv, problem.seqlen_kv, problem.head_dim)
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    sources = [k.tensor(f"{name}_accum", shape, "fp32") for name in ("dK", "dV")]
    targets = [k.tensor(name, shape, problem.dtype, role="output") for name in ("dK", "dV")]
    tiles = RowTiles(k, rows, problem.head_dim)
    tile = tiles.tile("gradient", "fp32")
    with k.role("rows", warps=WARPS, registers=tiles.registers(4)):
        for item in k.work():
            for source, target in zip(sources, targets, strict=True):
                k.load(tile, source[item.plane, item.row, 0])
                k.store(target[item.plane, item.row, 0], tile)
