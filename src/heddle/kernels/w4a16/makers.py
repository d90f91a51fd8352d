"""The wefts that make weights fp16 in FIBER-native kernels: what they load, in which order, and when a block is full.

A maker fills pool tensors, its targets, block by block along k, each by four wefts of their own. On A100 there is one,
the second operand of products, divided along k among the wefts (`ALONG_K`); later GPUs multiply with the weights as
rows, and each weft makes those of its own rows of each target (`BY_ROWS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heddle.kernels.w4a16.codebook import Codebook
from heddle.kernels.w4a16.items import CODE_BYTES, WORD, code_bytes
from heddle.kernels.w4a16.shape import W4Problem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle

GROUP = 4
"""Wefts of a role: one a subpartition."""


@dataclass(frozen=True, slots=True)
class Form:
    """How codes and values of columns are divided among warps; `all_targets`: the same warps make all targets.

    `groups` (with it): as many groups of warps make as many neighbouring targets each.
    """

    code_spread: Literal["summed", "second"]
    warps: tuple[int, int]
    all_targets: bool = False
    groups: int = 1


ALONG_K = Form("summed", (GROUP, 1))
BY_ROWS = Form("second", (1, GROUP))


@dataclass(frozen=True, slots=True)
class Target:
    """A pool tensor and the first of its columns of W in a tile."""

    tensor: RegisterHandle
    first: int


class Maker:
    """What is common: packed weights, and values of columns. `columns` of W are made in each target.

    `rank_columns`: columns of W between the CTAs of a cluster. `tile`: the suffix of a tile's attributes where a work
    item has several.
    """

    tile = ""

    def __init__(
        self,
        k: Builder,
        problem: W4Problem,
        targets: Sequence[Target],
        columns: int,
        block_k: int,
        form: Form,
        rank_columns: int = 0,
    ) -> None:
        self.k, self.problem, self.targets, self.form = k, problem, targets, form
        self.columns, self.block_words, self.rank_columns = columns, block_k // WORD, rank_columns
        size = CODE_BYTES[problem.scheme]
        self.of_column, kind = code_bytes(problem) // size, "uint16" if size > 1 else "uint8"
        self.packed = k.tensor("Q", (problem.k // WORD, problem.n * self.of_column), kind)
        self.codes = [
            k.registers(f"q{t}", (self.block_words, columns * self.of_column), kind, warps=form.warps,
                        spread=form.code_spread)
            for t in range(len(targets))
        ]  # fmt: skip

    def values(self, name: str) -> list[RegisterHandle]:
        """Declare a value of each column, for each target."""
        return [
            self.k.registers(f"{name}{t}", (1, self.columns), self.problem.dtype, warps=self.form.warps,
                             spread="second")
            for t in range(len(self.targets))
        ]  # fmt: skip

    def load_codes(self, item: Item, row: Index | int, number: int) -> None:
        """Load the codes of a block, for a target."""
        col = self._column(self._attribute(item, "packed_col"), number, self.of_column)
        self.k.load(self.codes[number], self.packed[row, col])

    def load_value(
        self, value: RegisterHandle, tensor: GlobalHandle, item: Item, row: Index | int, number: int
    ) -> None:
        """Load a value of each column of a target."""
        self.k.load(value, tensor[row, self._column(self._attribute(item, "w_col"), number, 1)])

    def _attribute(self, item: Item, name: str) -> Index:
        value: Index = getattr(item, name + self.tile)
        return value

    def _column(self, of_tile: Index, number: int, step: int) -> Index:
        first = of_tile + self.targets[number].first * step
        return first + self.k.cta_rank * (self.rank_columns * step) if self.rank_columns else first


class AwqMaker(Maker):
    """Unpacks: packed words come one block ahead, scales and zero points one group."""

    def __init__(
        self,
        k: Builder,
        problem: W4Problem,
        targets: Sequence[Target],
        columns: int,
        block_k: int,
        form: Form,
        rank_columns: int = 0,
    ) -> None:
        super().__init__(k, problem, targets, columns, block_k, form, rank_columns)
        self.blocks = problem.group // block_k
        rows = problem.k // problem.group
        self.tensors = [k.tensor(name, (rows, problem.n), problem.dtype) for name in ("S", "Z")]
        self.now = [self.values("s"), self.values("z")]
        self.next = [self.values("s_next"), self.values("z_next")]

    def begin(self, number: int = 0) -> None:
        """Nothing comes before the first tile."""

    def make(self, item: Item, number: int = 0) -> None:
        """All groups of a target but the last, each with loads of the next, and the last."""
        self._load_values(item, 0, self.now, number)
        self.load_codes(item, 0, number)
        k, words = self.k, self.blocks * self.block_words
        for group in k.range(item.groups - 1, name="group"):
            self._load_values(item, group + 1, self.next, number)
            for block in range(self.blocks):
                self._make_block(item, group * words + (block + 1) * self.block_words, number)
            for now, following in zip(self.now, self.next, strict=True):
                k.elementwise("copy", now[number], following[number])
        for block in range(self.blocks - 1):
            self._make_block(item, item.last_word + (block + 1) * self.block_words, number)
        self._make_block(item, None, number)

    def _make_block(self, item: Item, following: Index | None, number: int) -> None:
        scale, zero = (values[number] for values in self.now)
        target = self.targets[number].tensor
        self.k.dequantize(target, self.codes[number], scale, zero)
        if following is not None:
            self.load_codes(item, following, number)
        self.k.set_busy_bit(target, "full")

    def start(self, item: Item, target: int = 0) -> None:
        """Two blocks of a group that one warp makes in turn: values of the first two groups, codes of the first.

        `target`: the first of the two targets.
        """
        self._load_values(item, 0, self.now, target)
        self._load_values(item, 1, self.next, target)
        for number in range(2):
            self.load_codes(item, number * self.block_words, target + number)

    def step(self, item: Item, group: Index, target: int = 0) -> None:
        """Go on to the group after `group`; values of the one behind it are loaded, zeros behind the last."""
        for now, following in zip(self.now, self.next, strict=True):
            self.k.elementwise("copy", now[target], following[target])
        self._load_values(item, group + 2, self.next, target)

    def block(self, item: Item, group: Index | int, number: int, target: int = 0) -> None:
        """Make block `number` of a group and load the codes of the same of the next one."""
        scale, zero = (values[target] for values in self.now)
        self.k.dequantize(self.targets[target + number].tensor, self.codes[target + number], scale, zero)
        words = self.block_words
        self.load_codes(item, (group + 1) * (2 * words) + number * words, target + number)

    def _load_values(self, item: Item, row: Index | int, values: list[list[RegisterHandle]], number: int) -> None:
        for tensor, some in zip(self.tensors, values, strict=True):
            self.load_value(some[number], tensor, item, row, number)


class AqlmMaker(Maker):
    """Looks up: codes come one block ahead, scales once a tile.

    Two codebooks of 256 entries are copied into shared memory once for all tiles of an SM, eight times side by side as
    in today's kernel; one of 65,536 stays in global memory.
    """

    def __init__(
        self,
        k: Builder,
        problem: W4Problem,
        targets: Sequence[Target],
        columns: int,
        block_k: int,
        form: Form,
        rank_columns: int = 0,
    ) -> None:
        super().__init__(k, problem, targets, columns, block_k, form, rank_columns)
        makers = form.warps[0] * form.warps[1] * (form.groups if form.all_targets else len(targets))
        self.book = Codebook(k, problem, makers)
        self.scales, self.scale = k.tensor("S", (1, problem.n), problem.dtype), self.values("s")

    def begin(self, number: int = 0) -> None:
        """Copy the codebooks that lie in shared memory: the wefts of target 0; all wait for all."""
        self.book.begin(number)

    def make(self, item: Item, number: int = 0) -> None:
        """All blocks of a target but the last, each with the codes of the next, and the last."""
        self.load_value(self.scale[number], self.scales, item, 0, number)
        self.load_codes(item, 0, number)
        for block in self.k.range(item.k_blocks - 1, name="block"):
            self._make_block(item, (block + 1) * self.block_words, number)
        self._make_block(item, None, number)

    def start(self, item: Item, target: int = 0) -> None:
        """Two blocks that one warp makes in turn: scales, and codes of both. `target`: the first of the two targets."""
        self.load_value(self.scale[target], self.scales, item, 0, target)
        for number in range(2):
            self.load_codes(item, number * self.block_words, target + number)

    def step(self, item: Item, pair: Index, target: int = 0) -> None:
        """Scales are those of whole columns."""

    def block(self, item: Item, pair: Index | int, number: int, target: int = 0) -> None:
        """Make block `number` of a pair and load the codes of the same of the next one."""
        made, codes = self.targets[target + number].tensor, self.codes[target + number]
        self.k.look_up(made, codes, self.scale[target], self.book.place, books=self.book.books)
        words = self.block_words
        self.load_codes(item, (pair + 1) * (2 * words) + number * words, target + number)

    def _make_block(self, item: Item, following: Index | None, number: int) -> None:
        target = self.targets[number].tensor
        self.k.look_up(target, self.codes[number], self.scale[number], self.book.place, books=self.book.books)
        if following is not None:
            self.load_codes(item, following, number)
        self.k.set_busy_bit(target, "full")


def maker_items(problem: W4Problem, cols: list[int], tile: str = "") -> dict[str, list[int]]:
    """Return what work items whose tiles begin at these columns of W tell a maker; `tile`: see `Maker`."""
    columns = {
        f"w_col{tile}": cols,
        f"packed_col{tile}": [col * code_bytes(problem) // CODE_BYTES[problem.scheme] for col in cols],
    }
    if problem.looks_up:
        return columns
    groups = problem.k // problem.group
    return columns | {"last_word": [(groups - 1) * problem.group // WORD] * len(cols), "groups": [groups] * len(cols)}
