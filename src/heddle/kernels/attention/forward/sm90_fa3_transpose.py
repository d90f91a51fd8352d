"""V of 8-bit types on H100: wgmma takes such operands along the sum only, so the producer transposes each block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.kernels.attention.forward.sm90_fa3_config import TRANSPOSING_WARPS
from heddle.lang import Index, Item, SharedBox

if TYPE_CHECKING:
    from heddle.kernels.attention.forward.sm90_fa3_memory import Blocks, Memory

TURNED = 7
"""Named barrier of the warps that transpose: all have read a block."""


class TransposedBlocks:
    """V as it lies in global memory (`rows`, filled by bulk copies), and transposed, as the warp groups read it."""

    def __init__(self, memory: Memory, rows: Blocks) -> None:
        k, config = memory.k, memory.config
        self.k, self.rows = k, rows
        self.tile = k.shared("v_turned", (memory.d, config.tile_n), rows.tile.tile.dtype, stages=config.stages)
        self.ring = k.ring("v_turned_ring", config.stages)
        self.read = k.ring("v_read_ring", config.stages)  # the producer loads blocks ahead of those it transposes
        self.full = k.barrier("v_turned_full", arrivals=TRANSPOSING_WARPS, stages=config.stages)
        self.empty = k.barrier("v_turned_empty", arrivals=config.groups, stages=config.stages)

    @property
    def current(self) -> SharedBox:
        """The transposed block, [d, keys], that the ring points to."""
        return self.tile[self.ring]

    def load(self, item: Item, row: Index) -> None:
        """Start the copy of the block at `row` once its stage has been transposed."""
        self.rows.load(item, row)

    def turn(self) -> None:
        """Transpose the next block, by all warps of the producer, and hand it to the warp groups."""
        self.rows.full.wait(self.read)
        self.empty.wait(self.ring, flip=True)
        self.k.transpose(self.current, self.rows.tile[self.read])
        self.k.fence()
        self.full.arrive(self.ring, by="warp")
        self.k.sync(TURNED)
        self.rows.empty.arrive(self.read, by="group", cta=self.rows.everyone)
        self.ring.advance()
        self.read.advance()

    def wait(self) -> None:
        """Wait for the block that the ring points to."""
        self.full.wait(self.ring)

    def release(self) -> None:
        """Give a block back to the producer."""
        self.empty.arrive(self.ring, by="group")
        self.ring.advance()
