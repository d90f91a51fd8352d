"""The FIBER-native GEMM of H100: its problem with the shape of its tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.epilogue import TMA_ALIGNMENT_BYTES
from heddle.kernels.gemm.fiber_epilogue import FiberProduct
from heddle.kernels.gemm.raster import grouped_order

BLOCK_M = 64
"""Rows of a group of four wefts: 16 for each subpartition."""
TILE_K = 64
"""Columns of a slice in shared memory: 128 bytes of 16-bit elements, the swizzle."""
STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""
GROUP = 4
"""Wefts of a lockstep group."""
PART_N = 128
"""Columns that are handed over at once, at most: the pool holds one such part for each group."""

Exchange = Literal["bits", "barriers", "shared"]
"""How roles hand tensors over: in shared registers by bits or by mbarriers, or in shared memory."""
COPY_REGISTERS = 4
"""Registers of a role that copies."""
TURN_REGISTERS = 4
"""Registers of a role that multiplies, beside its tile."""
STORE_REGISTERS = 12
"""Registers of the role that stores, beside what it stores: addresses."""
LITERAL_REGISTERS = 16
"""Registers of a role that multiplies, where it also stores its sums to shared memory: addresses."""
EPILOGUE_N = 32
"""Columns that an epilogue works on at a time: their registers are no more than those of a part of C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm(FiberProduct):
    """The product in tiles of 64 `groups` x `tile_n`, on `fiber_threads`.

    `stages`: slices of A and B in shared memory. `groups`: of four wefts that multiply, 1 or 2. `cluster`: CTAs, one
    above the other, that share slices of B. `output_stages`: chunks of C in shared memory. `exchange`: how roles hand
    tensors over; without bits products are wgmma, with A in shared memory.
    """

    tile_n: int = 128
    stages: int = 4
    groups: int = 2
    cluster: int = 1
    output_stages: int = 1
    fiber_threads: int = 1
    exchange: Exchange = "bits"

    @property
    def tile_m(self) -> int:
        """Rows of a tile."""
        return BLOCK_M * self.groups

    @property
    def parts(self) -> int:
        """Parts of a tile's columns, each a product and a hand-over of its own."""
        return 1 if self.tile_n <= PART_N else 2

    @property
    def part_n(self) -> int:
        """Columns of a part."""
        return self.tile_n // self.parts

    @property
    def columns(self) -> int:
        """Columns that an epilogue works on at a time; all of a part without one."""
        return self.part_n if self.epilogue == "none" else min(self.part_n, EPILOGUE_N)

    @property
    def store_registers(self) -> int:
        """Registers of the role that stores: a part of C, or sums with two tiles of cosines and sines; addresses."""
        beside = 0 if self.epilogue == "none" else self.columns // 2 + 2 * self.columns // 4
        loaded = self.part_n // 2 if self.exchange == "shared" else 0
        return loaded + max(self.part_n // 4, beside) + STORE_REGISTERS

    @property
    def output_part_n(self) -> int:
        """Columns of C that a part gives."""
        return self.part_n // 2 if self.problem.gated else self.part_n

    @property
    def by_bulk_copy(self) -> bool:
        """Whether C is stored by bulk copies, which need rows that begin at multiples of 16 bytes."""
        return self.problem.output_cols * dtype_bytes(self.dtype) % TMA_ALIGNMENT_BYTES == 0

    @property
    def stage_bytes(self) -> int:
        """Bytes of one slice of A and of B."""
        return (self.tile_m + self.tile_n) * TILE_K * dtype_bytes(self.dtype)

    @property
    def output_bytes(self) -> int:
        """Bytes of shared memory for chunks of C, and for sums that are handed over there."""
        chunks = self.output_stages if self.by_bulk_copy else 0
        sums = self.groups * BLOCK_M * self.part_n * dtype_bytes("fp32") if self.exchange == "shared" else 0
        return chunks * BLOCK_M * self.output_part_n * dtype_bytes(self.dtype) + sums

    @property
    def clusters(self) -> int:
        """Clusters that run at one time."""
        return max(1, self.fiber_threads // self.cluster)

    def items(self) -> dict[str, list[int]]:
        """Return the table of work items, one for the tiles of a cluster. Raises UserError for what cannot be done."""
        if self.k <= TILE_K:
            raise UserError(f"k is {self.k}; this kernel needs more than {TILE_K}")
        if self.groups not in (1, 2):
            raise UserError(f"{self.groups} groups multiply; allowed: 1, 2 (one a window)")
        height, width = self.tile_m * self.cluster, self.tile_n
        rows, cols = ceil_div(self.m, height), ceil_div(self.n, width)
        check_item_count(f"the FIBER-native kernel cuts {self.m} x {self.n}", rows * cols)
        order = grouped_order(rows, cols, (height, width), self.clusters)
        blocks = ceil_div(self.k, TILE_K)
        return {
            "row": (order[:, 0] * height).tolist(),
            "col": (order[:, 1] * width).tolist(),
            "k_blocks": [blocks] * len(order),
            **self.item_columns((order[:, 1] * width).tolist()),
        }
