"""The passes over rows before and after the main backward kernel, for wefts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heddle.kernels.attention.backward.rows import check_group, multiply_rows
from heddle.kernels.attention.backward.rows_pass import Kinds, RowPass, Take, Taken, Unit
from heddle.kernels.attention.backward.tensors import padded_queries
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, GlobalBox, GlobalHandle, Index, RegisterHandle

MOST_HEADS = 8
"""Of a group, that are taken together."""
Own = Mapping[str, RegisterHandle]


class Preprocess(RowPass):
    """Row sums of dO * O, and zeros to the accumulator of dQ, which stay in registers."""

    own: Kinds = (("wide_o", "fp32"), ("wide_do", "fp32"), ("total", "column"), ("zeros", "fp32"))
    block_kinds: tuple[str, ...] = ("o", "do")
    lse: GlobalHandle
    """Declared where LSE is read, too."""

    def loaded(self) -> Kinds:
        """Return O and dO of each block, and LSE."""
        kinds = [(name, "column" if name == "lse" else self.problem.dtype) for name in self.block_kinds]
        return tuple((f"{name}{block}", kind) for block in range(self.blocks) for name, kind in kinds)

    def declare(self, k: Builder) -> None:
        """Declare tensors."""
        shape = (self.planes, self.rows, self.d)
        k.flops = 2 * self.planes * self.rows * self.d
        self.sources = [k.tensor(name, shape, self.problem.dtype) for name in ("O", "dO")]
        self.declare_statistics(k)
        self.accumulator = k.tensor("dQ_accum", shape, "fp32", role="output")

    def declare_statistics(self, k: Builder) -> None:
        """Declare what is written of each row."""
        self.sums = k.tensor("delta", (self.planes, self.rows, 1), "fp32", role="output")

    def boxes(self, unit: Unit) -> Iterator[list[GlobalBox]]:
        """Yield all of a unit."""
        yield [source[unit.at("plane"), row, 0] for row in self.block_starts(unit) for source in self.sources]

    def work(self, k: Builder, unit: Unit, own: Own, take: Take, taken: Taken) -> None:
        """Go through the blocks."""
        (boxes,) = self.boxes(unit)
        tiles, each = take(boxes), len(self.block_kinds)
        for block, row in enumerate(self.block_starts(unit)):
            pair, rest = tiles[each * block :][:2], tiles[each * block :][2:each]
            multiply_rows(k, pair, [own["wide_o"], own["wide_do"]], own["total"], taken)
            k.store(self.sums[unit.at("plane"), row, 0], own["total"])
            for logarithm in rest:
                k.elementwise("scale", own["logarithm"], logarithm, scalars=(LOG2_E,))
                taken(logarithm)
                k.store(self.lse[unit.at("plane"), row, 0], own["logarithm"])
            k.store(self.accumulator[unit.at("plane"), row, 0], own["zeros"])


class PreprocessFa3(Preprocess):
    """The same, with LSE to base 2; both statistics are padded."""

    own = (*Preprocess.own, ("logarithm", "column"))
    block_kinds = ("o", "do", "lse")

    def declare_statistics(self, k: Builder) -> None:
        """Declare sums and LSE in both forms."""
        statistics = (self.planes, padded_queries(self.problem), 1)
        self.sources.append(k.tensor("LSE", (self.planes, self.rows, 1), "fp32"))
        self.sums, self.lse = (k.tensor(name, statistics, "fp32", role="output") for name in ("dPsum", "LSE_log2"))


class Convert(RowPass):
    """dQ = its accumulator times the scale of the scores, in the type of Q."""

    own = (("dq", "fp32"),)

    def loaded(self) -> Kinds:
        """Return the accumulator of each block."""
        return tuple((f"sum{block}", "fp32") for block in range(self.blocks))

    def declare(self, k: Builder) -> None:
        """Declare tensors."""
        shape = (self.planes, self.rows, self.d)
        k.flops = self.planes * self.rows * self.d
        self.source = k.tensor("dQ_accum", shape, "fp32")
        self.target = k.tensor("dQ", shape, self.problem.dtype, role="output")

    def boxes(self, unit: Unit) -> Iterator[list[GlobalBox]]:
        """Yield all of a unit."""
        yield [self.source[unit.at("plane"), row, 0] for row in self.block_starts(unit)]

    def work(self, k: Builder, unit: Unit, own: Own, take: Take, taken: Taken) -> None:
        """Go through the blocks."""
        (boxes,) = self.boxes(unit)
        for row, tile in zip(self.block_starts(unit), take(boxes), strict=True):
            k.elementwise("scale", own["dq"], tile, scalars=(self.problem.scale,))
            taken(tile)
            k.store(self.target[unit.at("plane"), row, 0], own["dq"])


class ConvertKeys(RowPass):
    """dK and dV, their accumulators rounded."""

    of_keys = True
    names = ("dK", "dV")

    def loaded(self) -> Kinds:
        """Return both accumulators of each block."""
        return tuple((f"{name}{block}", "fp32") for block in range(self.blocks) for name in self.names)

    def declare(self, k: Builder) -> None:
        """Declare tensors."""
        shape = (self.planes, self.rows, self.d)
        self.sources = [k.tensor(f"{name}_accum", shape, "fp32") for name in self.names]
        self.targets = [k.tensor(name, shape, self.problem.dtype, role="output") for name in self.names]

    def boxes(self, unit: Unit) -> Iterator[list[GlobalBox]]:
        """Yield all of a unit."""
        yield [source[unit.at("plane"), row, 0] for row in self.block_starts(unit) for source in self.sources]

    def work(self, k: Builder, unit: Unit, own: Own, take: Take, taken: Taken) -> None:
        """Go through the blocks."""
        (boxes,) = self.boxes(unit)
        places = [target[unit.at("plane"), row, 0] for row in self.block_starts(unit) for target in self.targets]
        for place, tile in zip(places, take(boxes), strict=True):
            k.store(place, tile)
            taken(tile)


class ClearKeys(RowPass):
    """Zeros, which stay in registers, to the accumulators of dK and dV."""

    of_keys = True
    loads = False
    own = (("zeros", "fp32"),)

    def loaded(self) -> Kinds:
        """Return nothing."""
        return ()

    def declare(self, k: Builder) -> None:
        """Declare tensors."""
        shape = (self.planes, self.rows, self.d)
        self.targets = [k.tensor(f"{name}_accum", shape, "fp32", role="output") for name in ("dK", "dV")]

    def boxes(self, unit: Unit) -> Iterator[list[GlobalBox]]:
        """Yield nothing."""
        yield from ()

    def work(self, k: Builder, unit: Unit, own: Own, take: Take, taken: Taken) -> None:
        """Clear both."""
        for target in self.targets:
            for row in self.block_starts(unit):
                k.store(target[unit.at("plane"), row, 0], own["zeros"])


class GroupSum(RowPass):
    """dK and dV of each key and value head: the sums over its query heads, some of which are taken together."""

    of_keys = True
    blocks = 1
    own = (("wide", "fp32"), ("total", "fp32"))

    def __init__(self, problem: AttentionProblem) -> None:
        """Raise UserError on a group that there is no code for."""
        super().__init__(problem)
        check_group(problem, "attention_bwd_group_sum")
        self.heads = range(problem.group)
        self.together = min(MOST_HEADS, problem.group)

    def units(self) -> dict[str, list[int]]:
        """Return the units, with the plane of each query head."""
        units, group = super().units(), self.problem.group
        return units | {f"plane{head}": [plane * group + head for plane in units["plane"]] for head in self.heads}

    def loaded(self) -> Kinds:
        """Return some heads of one block, of dK or dV."""
        return tuple((f"head{head}", self.problem.dtype) for head in range(self.together))

    def declare(self, k: Builder) -> None:
        """Declare tensors."""
        shape, heads = (self.planes, self.rows, self.d), (self.planes * self.problem.group, self.rows, self.d)
        k.flops = 2 * (self.problem.group - 1) * self.planes * self.rows * self.d
        self.sources = [k.tensor(f"{name}_heads", heads, self.problem.dtype) for name in ("dK", "dV")]
        self.targets = [k.tensor(name, shape, self.problem.dtype, role="output") for name in ("dK", "dV")]

    def boxes(self, unit: Unit) -> Iterator[list[GlobalBox]]:
        """Yield some heads at a time, block by block, of dK and then of dV."""
        for source in self.sources:
            for row in self.block_starts(unit):
                yield from self.of_heads(source, unit, row)

    def of_heads(self, source: GlobalHandle, unit: Unit, row: Index) -> Iterator[list[GlobalBox]]:
        """Yield the heads of a block, some at a time."""
        for first in self.heads[:: self.together]:
            heads = self.heads[first : first + self.together]
            yield [source[unit.at(f"plane{head}"), row, 0] for head in heads]

    def work(self, k: Builder, unit: Unit, own: Own, take: Take, taken: Taken) -> None:
        """Add up block by block."""
        for source, target in zip(self.sources, self.targets, strict=True):
            for row in self.block_starts(unit):
                k.fill(own["total"])
                for boxes in self.of_heads(source, unit, row):
                    for tile in take(boxes):
                        k.elementwise("cast", own["wide"], tile)
                        taken(tile)
                        k.elementwise("add", own["total"], own["total"], own["wide"])
                k.store(target[unit.at("plane"), row, 0], own["total"])
