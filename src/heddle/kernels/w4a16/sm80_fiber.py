"""AWQ on A100 with FIBER: wefts of their own make weights fp16, in shared vector registers; four wefts multiply.

Four wefts load A as in the FIBER-native GEMM. Four load packed weights from global memory, a step of k of a block each,
and unpack them into registers of their own subpartition, once for the SM. Four multiply by weft-level products in
lockstep: A from their own subpartition, the weights from one of the four. Bits order each fragment: unpacking fills the
registers of one step while the products of the other three run.
"""

from __future__ import annotations

from heddle.kernels._warp import LANES
from heddle.kernels.gemm.sm80_fiber import GROUP, LOAD_REGISTERS, TILE_K, FiberGemm80, Operand, sum_registers
from heddle.kernels.w4a16.items import WORD
from heddle.kernels.w4a16.shape import W4Problem
from heddle.lang import Builder, Index, Item, PoolHandle, RegisterHandle, kernel

WORD_BYTES = 4
UNPACK_REGISTERS = 24
"""Temporaries of unpacking and addresses of a weft that makes weights, beside words, scales and zero points."""


def weight_registers(tile_n: int) -> int:
    """Return the registers of a weft that makes weights: words of a step of k, two sets of scales and zero points."""
    return tile_n * TILE_K // GROUP // WORD // LANES + 4 * tile_n // 16 + UNPACK_REGISTERS


@kernel
def awq_sm80_fiber(k: Builder, problem: W4Problem, p: FiberGemm80) -> None:
    """Persistent over the tiles of C; `p` is the same product with fp16 weights."""
    k.flops = problem.flops
    items = p.items()
    items["packed_col"] = [col * WORD_BYTES for col in items["col"]]
    items["last_word"] = [(problem.k - problem.group) // WORD] * len(items["col"])
    items["groups"] = [problem.k // problem.group] * len(items["col"])
    k.work_items(items, clusters=p.fiber_threads)
    a = Operand(k, p, "A", (GROUP, 1), "own")
    weights = k.pool("b", (p.tile_n, TILE_K), problem.dtype, read_by="all", wefts=(1, GROUP))
    maker = Maker(k, problem, p, weights)
    c_global = k.tensor("C", (p.m, p.n), p.dtype, role="output")
    total = k.registers("total", (p.tile_m, p.tile_n), "fp32", warps=(GROUP, 1))

    k.set_fiber_num(begin=1, load_a=GROUP, weights=GROUP, multiply=GROUP)

    with k.role("begin", registers=GROUP):  # the weft that a FIBER-thread starts with
        pass

    with k.role("load_a", window=0, registers=LOAD_REGISTERS):
        for item in k.work():
            a.load(item, item.row)

    with k.role("weights", window=0, registers=weight_registers(p.tile_n)):
        for item in k.work():
            maker.make(item)

    with k.role("multiply", window=1, registers=sum_registers(p.tile_m, p.tile_n)):
        for item in k.work():
            k.fill(total)
            for _ in k.range(item.k_blocks):
                k.mma(total, a.fragments, weights[0])
                k.set_busy_bit(a.fragments, "empty")
                k.set_busy_bit(weights[0], "empty")
            k.store(c_global[item.row, item.col], total)


class Maker:
    """The wefts that make weights: packed words come one block ahead, scales and zero points one group."""

    def __init__(self, k: Builder, problem: W4Problem, p: FiberGemm80, weights: PoolHandle) -> None:
        self.k, self.weights, self.blocks = k, weights[0], problem.group // TILE_K
        rows, n = problem.k // problem.group, p.tile_n
        self.packed = k.tensor("Q", (problem.k // WORD, problem.n * WORD_BYTES), "uint8")
        self.values = [k.tensor(name, (rows, problem.n), problem.dtype) for name in ("S", "Z")]
        words = (TILE_K // WORD, n * WORD_BYTES)
        self.words = k.registers("q", words, "uint8", warps=(GROUP, 1), spread="summed")

        def values(name: str) -> list[RegisterHandle]:
            names = (f"s{name}", f"z{name}")
            return [k.registers(x, (1, n), problem.dtype, warps=(GROUP, 1), spread="second") for x in names]

        self.now, self.next = values(""), values("_next")

    def make(self, item: Item) -> None:
        """All groups of an item but the last, each with loads of the next, and the last."""
        self._load_values(item, 0, self.now)
        self._load_words(item, 0)
        k, words = self.k, self.blocks * TILE_K // WORD
        for group in k.range(item.groups - 1, name="group"):
            self._load_values(item, group + 1, self.next)
            for block in range(self.blocks):
                self._make_block(item, group * words + (block + 1) * (TILE_K // WORD))
            for value, following in zip(self.now, self.next, strict=True):
                k.elementwise("copy", value, following)
        for block in range(self.blocks - 1):
            self._make_block(item, item.last_word + (block + 1) * (TILE_K // WORD))
        self._make_block(item, None)

    def _make_block(self, item: Item, following: Index | None) -> None:
        self.k.dequantize(self.weights, self.words, *self.now)
        if following is not None:
            self._load_words(item, following)
        self.k.set_busy_bit(self.weights, "full")

    def _load_words(self, item: Item, row: Index | int) -> None:
        self.k.load(self.words, self.packed[row, item.packed_col])

    def _load_values(self, item: Item, row: Index | int, values: list[RegisterHandle]) -> None:
        for value, tensor in zip(values, self.values, strict=True):
            self.k.load(value, tensor[row, item.col])
