"""What the four wefts of decoding have found for their keys, where it passes through shared memory.

No register of another subpartition is read then, and two named barriers order the four and the weft that adds up.
"""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, RegisterHandle

WEFTS = 4
"""Of a role: one in each subpartition."""
ROWS = 16
"""Query heads of an item: the m of mma.sync."""
WIDTH = 64
"""Columns of O that are handed over at a time, and of a load of values."""
FREE, FULL = 1, 2
"""Named barriers: the parts may be written, and have been."""
EVERYONE = WEFTS + 1


class SharedParts:
    """O of each weft's keys, divided by its own sum, and the base-2 logarithms of the sums."""

    def __init__(self, k: Builder, problem: DecodeProblem) -> None:
        self.k, rows = k, WEFTS * ROWS
        self.output = k.shared("part", (rows, problem.head_dim), "fp32")
        self.log = k.shared("part_log", (rows, 1), "fp32")
        self.part = k.registers("part_loaded", (ROWS, WIDTH), "fp32", warps=(1, 1))

    def open(self) -> None:
        """At the entry of the weft that adds up: the parts may be written."""
        self.k.arrive(FREE, warps=EVERYONE)

    def take_logs(self, logs: Sequence[RegisterHandle]) -> None:
        """Wait for the parts, and load the four logarithms."""
        self.k.sync(id=FULL, warps=EVERYONE)
        for quarter, log in enumerate(logs):
            self.k.load(log, self.log[:].part(row=quarter * ROWS, rows=ROWS))

    def add_up(self, total: RegisterHandle, col: int, weights: Sequence[RegisterHandle]) -> None:
        """Add up the columns from `col` on."""
        k = self.k
        for quarter, weight in enumerate(weights):
            k.load(self.part, self.output[:].part(row=quarter * ROWS, rows=ROWS, col=col, cols=WIDTH))
            if quarter:
                k.elementwise("fma", total, self.part, weight, total)
            else:
                k.elementwise("mul", total, self.part, weight)

    def end(self) -> None:
        """The parts may be written again."""
        self.k.arrive(FREE, warps=EVERYONE)


class Giver:
    """Writes the parts of some wefts, whose rows begin at `row`; `log`: a column of their registers."""

    def __init__(self, parts: SharedParts, log: RegisterHandle, row: int = 0) -> None:
        self.k, self.parts, self.log, self.row, self.rows = parts.k, parts, log, row, log.tile.rows

    def give(self, softmax: OnlineSoftmax, outputs: Sequence[RegisterHandle]) -> None:
        """Hand over what the wefts have, after `finish` of their softmax."""
        k, own = self.k, {"row": self.row, "rows": self.rows}
        k.elementwise("log2", self.log, softmax.total)
        k.elementwise("add", self.log, self.log, softmax.scaled)
        k.sync(id=FREE, warps=EVERYONE)
        k.store(self.parts.log[:].part(**own), self.log)
        for index, output in enumerate(outputs):
            cols = output.tile.cols
            softmax.rescale(output)
            k.store(self.parts.output[:].part(**own, col=index * cols, cols=cols), output)
        k.arrive(FULL, warps=EVERYONE)

    def close(self) -> None:
        """At the end: meet the arrival that is left over."""
        self.k.sync(id=FREE, warps=EVERYONE)
