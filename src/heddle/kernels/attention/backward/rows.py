"""The kernels before and after the main backward kernel: they go through rows once, and memory limits them.

Known from the sources of FlashAttention 2 (github.com/Dao-AILab/flash-attention, flash_bwd_preprocess_kernel.h at
270af38): a CTA of eight warps takes as many rows as the main kernel does, a lane 16 bytes of a row at a time. The
main kernel there adds to dQ in an order of its own in which neighbouring lanes have neighbouring words, and the last
kernel brings the elements in order through shared memory; here dQ lies in order all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heddle.errors import UserError
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalBox, RegisterHandle, kernel

WARPS = 8
"""Of a CTA."""
LANE_COLUMNS = 8
"""Of a 16-bit row, 16 bytes: what a lane has side by side."""
WORKING_REGISTERS = 32
"""Of a thread beside its tiles: addresses, values on their way to a store."""
LARGEST_GROUP = 64
"""Query heads of a group: the code of a sum has a part for each."""

Items = dict[str, list[int]]


class RowTiles:
    """Declares register tiles of `rows` x head size over the warps, a row over as many lanes as it has pieces."""

    def __init__(self, k: Builder, rows: int, head_dim: int) -> None:
        self.k, self.rows, self.head_dim = k, rows, head_dim

    def registers(self, element_bytes: int) -> int:
        """Return the budget of a thread for tiles with so many bytes for each element of the rows."""
        return self.rows * self.head_dim * element_bytes // (WARPS * LANES * REGISTER_BYTES) + WORKING_REGISTERS

    def tile(self, name: str, dtype: str, *, column: bool = False) -> RegisterHandle:
        """Declare a tile, or a column of one value a row."""
        shape = (self.rows, 1 if column else self.head_dim)
        lanes = self.head_dim // LANE_COLUMNS
        return self.k.registers(name, shape, dtype, warps=(WARPS, 1), spread="rows", row_lanes=lanes)


def sum_products(
    k: Builder,
    loaded: list[RegisterHandle],
    wide: list[RegisterHandle],
    total: RegisterHandle,
    boxes: list[GlobalBox],
) -> None:
    """Load the same rows of O and dO and write the sum of their products over each; `wide[1]` is free afterwards."""
    for registers, box in zip(loaded, boxes, strict=True):
        k.load(registers, box)
    multiply_rows(k, loaded, wide, total)


def multiply_rows(
    k: Builder,
    loaded: Sequence[RegisterHandle],
    wide: list[RegisterHandle],
    total: RegisterHandle,
    taken: Callable[[RegisterHandle], None] = lambda tile: None,
) -> None:
    """Write the sum of the products of rows of O and dO over each; `taken`: a tile has been read."""
    for target, registers in zip(wide, loaded, strict=True):
        k.elementwise("cast", target, registers)
        taken(registers)
    k.elementwise("mul", wide[0], *wide)
    k.row_reduce("sum", total, wide[0])


def check_group(problem: AttentionProblem, name: str) -> None:
    """Raise UserError where a group has more query heads than there is code for."""
    if problem.group > LARGEST_GROUP:
        raise UserError(f"{problem.group} query heads share keys; {name} has code for up to {LARGEST_GROUP}")


@kernel
def attention_bwd_preprocess(k: Builder, problem: AttentionProblem, rows: int, items: Items) -> None:
    """Write delta = sum of dO * O over each row, and zeros to the accumulator of dQ."""
    k.flops = 2 * problem.batch * problem.heads_q * problem.seqlen_q * problem.head_dim
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    planes, queries, d = problem.batch * problem.heads_q, problem.seqlen_q, problem.head_dim
    o, do = (k.tensor(name, (planes, queries, d), problem.dtype) for name in ("O", "dO"))
    delta = k.tensor("delta", (planes, queries, 1), "fp32", role="output")
    accumulator = k.tensor("dQ_accum", (planes, queries, d), "fp32", role="output")
    tiles = RowTiles(k, rows, d)
    loaded = [tiles.tile(name, problem.dtype) for name in ("o", "do")]
    wide = [tiles.tile(f"wide_{name}", "fp32") for name in ("o", "do")]
    total = tiles.tile("total", "fp32", column=True)
    with k.role("rows", warps=WARPS, registers=tiles.registers(12)):
        for item in k.work():
            sum_products(k, loaded, wide, total, [source[item.plane, item.row, 0] for source in (o, do)])
            k.store(delta[item.plane, item.row, 0], total)
            k.fill(wide[1])
            k.store(accumulator[item.plane, item.row, 0], wide[1])


@kernel
def attention_bwd_convert(k: Builder, problem: AttentionProblem, rows: int, items: Items) -> None:
    """Write dQ = its accumulator times the scale of the scores, in the type of Q."""
    k.flops = problem.batch * problem.heads_q * problem.seqlen_q * problem.head_dim
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    shape = (problem.batch * problem.heads_q, problem.seqlen_q, problem.head_dim)
    accumulator = k.tensor("dQ_accum", shape, "fp32")
    dq = k.tensor("dQ", shape, problem.dtype, role="output")
    tiles = RowTiles(k, rows, problem.head_dim)
    tile = tiles.tile("dq", "fp32")
    with k.role("rows", warps=WARPS, registers=tiles.registers(4)):
        for item in k.work():
            k.load(tile, accumulator[item.plane, item.row, 0])
            k.elementwise("scale", tile, tile, scalars=(problem.scale,))
            k.store(dq[item.plane, item.row, 0], tile)


@kernel
def attention_bwd_group_sum(k: Builder, problem: AttentionProblem, rows: int, items: Items) -> None:
    """Write dK and dV of each key and value head: the sums over its query heads, two planes of items at a time."""
    elements = problem.batch * problem.heads_kv * problem.seqlen_kv * problem.head_dim
    k.flops = 2 * (problem.group - 1) * elements
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    keys, d, dtype = problem.seqlen_kv, problem.head_dim, problem.dtype
    heads = (problem.batch * problem.heads_q, keys, d)
    sums = (problem.batch * problem.heads_kv, keys, d)
    sources = [k.tensor(name, heads, dtype) for name in ("dK_heads", "dV_heads")]
    targets = [k.tensor(name, sums, dtype, role="output") for name in ("dK", "dV")]
    tiles = RowTiles(k, rows, d)
    part, wide, total = tiles.tile("part", dtype), tiles.tile("wide", "fp32"), tiles.tile("sum", "fp32")
    with k.role("rows", warps=WARPS, registers=tiles.registers(10)):
        for item in k.work():
            for source, target in zip(sources, targets, strict=True):
                k.fill(total)
                for head in range(problem.group):
                    k.load(part, source[getattr(item, f"plane{head}"), item.row, 0])
                    k.elementwise("cast", wide, part)
                    k.elementwise("add", total, total, wide)
                k.store(target[item.plane, item.row, 0], total)
