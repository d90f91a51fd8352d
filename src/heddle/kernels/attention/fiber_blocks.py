"""K or V of the FIBER-native attentions of H100 and B200: blocks in shared memory that one weft loads."""

from __future__ import annotations

from heddle.ir.dtypes import dtype_bytes
from heddle.lang import Builder, Cta, GlobalHandle, Index, Item, RegisterHandle, SharedBox

STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Blocks:
    """`stages` blocks of `keys` rows in shared memory, filled by the loading weft, given back by `readers` wefts.

    The FIBER-threads of a `cluster` load a part each for all of them.
    """

    def __init__(
        self, k: Builder, name: str, source: GlobalHandle, *, keys: int, stages: int, readers: int, cluster: int = 1
    ) -> None:
        tensor = source.tensor
        self.k, self.source, self.cluster = k, source, cluster
        self.strip = STRIP_BYTES // dtype_bytes(tensor.dtype)
        self.everyone: Cta = "all" if cluster > 1 else "own"
        self.tile = k.shared(name, (keys, tensor.shape[-1]), tensor.dtype, stages=stages)
        self.ring = k.ring(f"{name}_ring", stages)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=stages)
        self.empty = k.barrier(f"{name}_empty", arrivals=readers, stages=stages)

    @property
    def current(self) -> SharedBox:
        """The block that the ring points to."""
        return self.tile[self.ring]

    def load(self, item: Item, row: Index) -> None:
        """Wait for a free stage and start the copy of the block at `row`."""
        self.empty.wait(self.ring, flip=True)
        self.full.expect(self.ring, bytes=self.tile.stage_bytes)
        for col in range(0, self.tile.tile.cols, self.strip):
            box, source = self.current.part(col=col, cols=self.strip), self.source[item.kv_plane, row, col]
            self.k.tma_load(box, source, self.full[self.ring], multicast=self.cluster)
        self.ring.advance()

    def wait(self) -> None:
        """Wait for the block that the ring points to."""
        self.full.wait(self.ring)

    def release(self) -> None:
        """Give a block back once each weft has read it."""
        self.empty.arrive(self.ring, cta=self.everyone)
        self.ring.advance()

    def release_before(self, read: RegisterHandle) -> None:
        """Give back the block before the one that the ring points to; the last product with it has operand `read`."""
        self.empty.arrive(self.ring.previous, read=read)
