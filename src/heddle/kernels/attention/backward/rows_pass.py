"""What wefts do in the launches around the main backward kernel, however their rows reach them.

A unit is some blocks of rows of one head; a block is what four wefts have side by side, a lane 16 bytes of a 16-bit
row. A pass says which boxes of a unit it reads, in their order, and what becomes of them; `rows_fiber` and `rows_wefts`
bring them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import WEFTS
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.attention.backward.rows import LANE_COLUMNS, WORKING_REGISTERS
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalBox, Index, RegisterHandle

Kinds = tuple[tuple[str, str], ...]
"""Register tiles of a block: name and type, `column` for one value of 32 bits a row."""
Tiles = list[RegisterHandle]
Take = Callable[[Sequence[GlobalBox]], Tiles]
"""Gives tiles with what was read from boxes."""
Taken = Callable[[RegisterHandle], None]
"""Is told that a tile has been read for the last time."""


class Unit(Protocol):
    """A unit, whichever form asks."""

    def at(self, attribute: str) -> Index:
        """Return `plane`, `row`, or `plane0` and so on, the planes of a group's query heads."""


class RowPass(ABC):
    """A pass over rows, of queries or of keys (`of_keys`); `loads`: it reads something."""

    of_keys = False
    loads = True
    blocks = 4
    """Of a unit."""
    own: Kinds = ()
    """Tiles of a working weft, beside what it reads."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.problem = problem
        self.d, self.row_lanes = problem.head_dim, problem.head_dim // LANE_COLUMNS
        self.block_rows = WEFTS * LANES // self.row_lanes
        self.planes = problem.batch * (problem.heads_kv if self.of_keys else problem.heads_q)
        self.rows = problem.seqlen_kv if self.of_keys else problem.seqlen_q

    @abstractmethod
    def loaded(self) -> Kinds:
        """Return the tiles that a unit has at a time, in the order of its boxes."""

    @abstractmethod
    def declare(self, k: Builder) -> None:
        """Declare the global tensors, and state the operations."""

    @abstractmethod
    def boxes(self, unit: Unit) -> Iterator[list[GlobalBox]]:
        """Yield what a unit reads, as much together as there are tiles for."""

    def begin(self, k: Builder, own: Mapping[str, RegisterHandle]) -> None:
        """Have zeros, where a pass writes some: once for all units."""
        if "zeros" in own:
            k.fill(own["zeros"])

    @abstractmethod
    def work(self, k: Builder, unit: Unit, own: Mapping[str, RegisterHandle], take: Take, taken: Taken) -> None:
        """Work on a unit: take its boxes in their order, and say of each tile when it has been read."""

    def units(self) -> dict[str, list[int]]:
        """Return the units; rows fastest."""
        firsts = range(0, self.rows, self.blocks * self.block_rows)
        return {"plane": [plane for plane in range(self.planes) for _ in firsts], "row": [*firsts] * self.planes}

    def unit_count(self) -> int:
        """Return how many units there are."""
        return self.planes * ceil_div(self.rows, self.blocks * self.block_rows)

    def registers(self, kinds: Kinds) -> int:
        """Return the registers of a weft for tiles."""
        return sum(1 if kind == "column" else LANE_COLUMNS * dtype_bytes(kind) // REGISTER_BYTES
                   for _, kind in kinds)  # fmt: skip

    def working_registers(self) -> int:
        """Return the registers of a weft for its own tiles, and for addresses and values on their way to a store."""
        return self.registers(self.own) + WORKING_REGISTERS

    def tiles(self, kinds: Kinds, declare: Callable[[str, tuple[int, int], str], RegisterHandle]) -> Tiles:
        """Declare tiles of a block, each by its name, shape and type."""
        return [
            declare(name, (self.block_rows, 1 if kind == "column" else self.d), "fp32" if kind == "column" else kind)
            for name, kind in kinds
        ]

    def own_tiles(self, k: Builder, kinds: Kinds, suffix: str) -> dict[str, RegisterHandle]:
        """Declare tiles in registers of four wefts."""
        found = self.tiles(kinds, lambda name, shape, dtype: k.registers(
            name + suffix, shape, dtype, warps=(WEFTS, 1), spread="rows", row_lanes=self.row_lanes))  # fmt: skip
        return {name: tile for (name, _), tile in zip(kinds, found, strict=True)}

    def block_starts(self, unit: Unit) -> list[Index]:
        """Return the first row of each block."""
        return [unit.at("row") + block * self.block_rows for block in range(self.blocks)]
