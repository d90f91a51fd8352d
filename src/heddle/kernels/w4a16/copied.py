"""Weights made of codes that bulk copies bring to shared memory, as CUTLASS's kernels of mixed types do."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.w4a16.codebook import Codebook
from heddle.kernels.w4a16.items import CODE_BYTES, WORD, code_bytes
from heddle.kernels.w4a16.shape import TILE_K, W4Problem
from heddle.lang import Builder, Index, Item, RegisterHandle

BLOCKS = 2
"""Blocks of k in a stage."""
PAIR = BLOCKS * TILE_K


class Copied:
    """A ring of stages of 128 elements of k: packed weights of `columns` of W, and what belongs to the columns.

    AWQ has a scale and a zero point for each stage, which is a group; AQLM a scale, which comes again with each.
    `groups` of warps make the two blocks of a stage, one both or each one.
    """

    def __init__(
        self, k: Builder, problem: W4Problem, columns: int, rank_columns: int, stages: int, groups: int = 1
    ) -> None:
        self.k, self.problem, self.rank_columns = k, problem, rank_columns
        size = CODE_BYTES[problem.scheme]
        self.of_column, kind = code_bytes(problem) // size, "uint16" if size > 1 else "uint8"
        width, rows = columns * self.of_column, 1 if problem.looks_up else problem.k // problem.group
        self.packed = k.tensor("Q", (problem.k // WORD, problem.n * self.of_column), kind)
        self.of_columns = {name: k.tensor(name, (rows, problem.n), problem.dtype) for name in self._names()}
        self.shared = k.shared("codes", (PAIR // WORD, width), kind, stages=stages, swizzle_bytes=0)
        self.ring, self.full = k.ring("codes_ring", stages), k.barrier("codes_full", arrivals=1, stages=stages)
        self.empty = k.barrier("codes_empty", arrivals=GROUP_WARPS * groups, stages=stages)
        self.codes = [self._lanes(f"q{i}", (TILE_K // WORD, width), kind) for i in range(BLOCKS)]
        self.values = [
            {name: self._lanes(f"v{group}_{name}", (1, columns), problem.dtype) for name in self._names()}
            for group in range(groups)
        ]
        self.staged = {
            name: k.shared(f"s_{name}", (1, columns), problem.dtype, stages=stages, swizzle_bytes=0)
            for name in self._names()
        }
        self.book = Codebook(k, problem, GROUP_WARPS * groups) if problem.looks_up else None

    def _names(self) -> str:
        return "S" if self.problem.looks_up else "SZ"

    def _lanes(self, name: str, shape: tuple[int, int], dtype: str) -> RegisterHandle:
        return self.k.registers(name, shape, dtype, warps=(1, GROUP_WARPS), spread="second")

    def copy(self, item: Item) -> None:
        """Global to shared memory, as far ahead as the ring allows."""
        k, ring = self.k, self.ring
        size = self.shared.stage_bytes + sum(staged.stage_bytes for staged in self.staged.values())
        for pair in k.range(item.pairs, name="codes"):
            self.empty.wait(ring, flip=True)
            self.full.expect(ring, bytes=size)
            box = self.packed[pair * (PAIR // WORD), self._column(item.packed_col, self.of_column)]
            k.tma_load(self.shared[ring], box, self.full[ring])
            for name, tensor in self.of_columns.items():
                row = 0 if self.problem.looks_up else pair
                k.tma_load(self.staged[name][ring], tensor[row, self._column(item.w_col, 1)], self.full[ring])
            ring.advance()

    def _column(self, first: Index, step: int) -> Index:
        return first + self.k.cta_rank * (self.rank_columns * step) if self.rank_columns else first

    def begin(self, group: int) -> None:
        """Copy codebooks that lie in shared memory."""
        if self.book:
            self.book.begin(group)

    def load(self, group: int, blocks: Sequence[int]) -> None:
        """Blocks of a stage from shared memory to registers; it is given back."""
        k, rows = self.k, TILE_K // WORD
        self.full.wait(self.ring)
        for number in blocks:
            k.load(self.codes[number], self.shared[self.ring].part(row=number * rows, rows=rows))
        for name, value in self.values[group].items():
            k.load(value, self.staged[name][self.ring])
        self.empty.arrive(self.ring)
        self.ring.advance()

    def make(self, target: RegisterHandle, group: int, number: int) -> None:
        """Make the weights of a block of the stage that was loaded."""
        k, codes, values = self.k, self.codes[number], self.values[group]
        if self.book:
            k.look_up(target, codes, values["S"], self.book.place, books=self.book.books)
        else:
            k.dequantize(target, codes, values["S"], values["Z"])
