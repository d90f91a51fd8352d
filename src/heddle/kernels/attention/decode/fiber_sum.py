"""What the four wefts of FIBER-native decoding have found for their keys, in shared registers, and its sum.

`fiber_parts` has the same where it passes through shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels.attention.decode.fiber_parts import ROWS, WEFTS, WIDTH, SharedParts
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Item, RegisterHandle

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

    def close(self) -> None:
        """Nothing is left over at the end of the wefts that give."""

    def open(self) -> None:
        """Nothing has to be said at the entry of the weft that adds up."""

    def take_logs(self, logs: Sequence[RegisterHandle]) -> None:
        """Copy the four logarithms and give them back."""
        for quarter, log in enumerate(logs):
            self.k.elementwise("copy", log, self.log.quarter(quarter))
        self.k.set_busy_bit(self.log, "empty")

    def add_up(self, total: RegisterHandle, col: int, weights: Sequence[RegisterHandle]) -> None:
        """Add up the columns from `col` on, which come in order, and give them back."""
        k = self.k
        k.elementwise("mul", total, self.output.quarter(0), weights[0])
        for quarter, weight in list(enumerate(weights))[1:]:
            k.elementwise("fma", total, self.output.quarter(quarter), weight, total)
        k.set_busy_bit(self.output, "empty")

    def end(self) -> None:
        """All has been given back."""


class Sum:
    """The weft that weights and adds up the four."""

    def __init__(self, k: Builder, problem: DecodeProblem, parts: Parts | SharedParts) -> None:
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
            parts.add_up(self.total, col, self.weights)
            k.store(self.o_global[item.q_plane, item.row, item.part + col], self.total)
        parts.end()

    def _weigh(self) -> None:
        """Each weft's share of the whole sum, whose logarithm is in `sum` then."""
        k = self.k
        self.parts.take_logs(self.weights)
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
