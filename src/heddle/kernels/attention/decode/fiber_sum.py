"""What the four wefts of FIBER-native decoding have found for their keys, in shared registers, and its sum."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Item, RegisterHandle

WEFTS = 4
"""Of a role: one in each subpartition."""
ROWS = 16
"""Query heads of an item: the m of mma.sync."""
WIDTH = 64
"""Columns of O that are handed over at a time, and of a load of values."""
COMBINE_REGISTERS = 80
"""Of the weft that adds up: some columns of O, four logarithms and weights, packed stores and their addresses."""


class Parts:
    """O of each weft's keys, divided by its own sum, some columns at a time, and the base-2 logarithms of the sums."""

    def __init__(self, k: Builder, problem: DecodeProblem) -> None:
        self.k, rows = k, WEFTS * ROWS
        self.output = k.pool("part", (rows, WIDTH), "fp32", read_by="all")[0]
        self.log = k.pool("part_log", (rows, 1), "fp32", read_by="all")[0]
        self.lse = k.registers("own_log", (rows, 1), "fp32", warps=(WEFTS, 1))

    def give(self, softmax: OnlineSoftmax, outputs: Sequence[RegisterHandle]) -> None:
        """Hand over what a weft has, after `finish` of its softmax."""
        k = self.k
        k.elementwise("log2", self.lse, softmax.total)
        k.elementwise("add", self.log, self.lse, softmax.scaled)
        k.set_busy_bit(self.log, "full")
        for output in outputs:
            k.elementwise("mul", self.output, output, softmax.correction)
            k.set_busy_bit(self.output, "full")


class Sum:
    """The weft that weights and adds up the four."""

    def __init__(self, k: Builder, problem: DecodeProblem, parts: Parts) -> None:
        self.k, self.problem, self.parts = k, problem, parts
        shape = (problem.planes, problem.group, problem.num_splits)
        self.o_global = k.tensor("O_partial", (*shape[:2], shape[2] * problem.head_dim), "fp32", role="output")
        self.log_global = k.tensor("LSE_partial", shape, "fp32", role="output")
        self.weights = [self._tile(f"weight_{i}", 1) for i in range(WEFTS)]
        self.highest, self.sum, self.total = self._tile("highest", 1), self._tile("sum", 1), self._tile("total", WIDTH)

    def _tile(self, name: str, cols: int) -> RegisterHandle:
        return self.k.registers(name, (ROWS, cols), "fp32", warps=(1, 1))

    def write(self, item: Item) -> None:
        """Write O and the logarithm of the sum of a split."""
        k, parts = self.k, self.parts
        self._weigh()
        k.store(self.log_global[item.q_plane, item.row, item.split], self.sum)
        for col in range(0, self.problem.head_dim, WIDTH):
            k.elementwise("mul", self.total, parts.output.quarter(0), self.weights[0])
            for quarter, weight in list(enumerate(self.weights))[1:]:
                k.elementwise("fma", self.total, parts.output.quarter(quarter), weight, self.total)
            k.set_busy_bit(parts.output, "empty")
            k.store(self.o_global[item.q_plane, item.row, item.part + col], self.total)

    def _weigh(self) -> None:
        """Each weft's share of the whole sum, whose logarithm is in `sum` then."""
        k = self.k
        for quarter, weight in enumerate(self.weights):
            k.elementwise("copy", weight, self.parts.log.quarter(quarter))
        k.set_busy_bit(self.parts.log, "empty")
        k.elementwise("max", self.highest, self.weights[0], self.weights[1])
        for weight in self.weights[2:]:
            k.elementwise("max", self.highest, self.highest, weight)
        for weight in self.weights:
            k.elementwise("sub", weight, weight, self.highest)
            k.elementwise("exp2", weight, weight)
        k.elementwise("add", self.sum, self.weights[0], self.weights[1])
        for weight in self.weights[2:]:
            k.elementwise("add", self.sum, self.sum, weight)
        for weight in self.weights:
            k.elementwise("div", weight, weight, self.sum)
        k.elementwise("log2", self.sum, self.sum)
        k.elementwise("add", self.sum, self.sum, self.highest)
