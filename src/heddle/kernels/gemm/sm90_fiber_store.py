"""The role of H100's FIBER-native GEMM that stores: sums of another role through the epilogue to the way out."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels._channels import BarrierChannel, BitChannel, SharedChannel
from heddle.kernels.gemm.sm90_fiber_memory import Memory
from heddle.kernels.gemm.sm90_fiber_shape import BLOCK_M, GROUP, FiberGemm
from heddle.lang import Builder, Item, RegisterHandle

Channel = BitChannel | BarrierChannel | SharedChannel


class Store:
    """Takes the parts of tiles from the `channels` of the groups, in the order in which they are handed over."""

    def __init__(self, k: Builder, p: FiberGemm, memory: Memory, channels: Sequence[Channel]) -> None:
        self.k, self.p, self.memory, self.channels = k, p, memory, channels
        self.loaded = self._registers("loaded", p.part_n, "fp32") if p.exchange == "shared" else None
        self.out = self._registers("out", p.part_n, p.dtype) if p.epilogue == "none" else None
        self.sums = None if self.out is not None else self._registers("sums", p.columns, "fp32")

    def _registers(self, name: str, cols: int, dtype: str) -> RegisterHandle:
        return self.k.registers(name, (BLOCK_M, cols), dtype, warps=(GROUP, 1))

    def store(self, item: Item) -> None:
        """A tile on its way out."""
        for part in range(self.p.parts):
            for g, channel in enumerate(self.channels):
                self._store_part(item, g, part, channel)

    def _store_part(self, item: Item, g: int, part: int, channel: Channel) -> None:
        k, memory = self.k, self.memory
        total = self._take(channel)
        if self.out is not None:
            k.elementwise("cast", self.out, total)
            self._give_back(channel)
            memory.begin_chunk()
            memory.put(item, g, part, self.out)
        else:
            memory.begin_chunk()
            self._finish(item, g, part, total, channel)
        memory.end_chunk()

    def _take(self, channel: Channel) -> RegisterHandle:
        """Wait for sums; those in shared memory are loaded, and their place is given back at once."""
        if isinstance(channel, SharedChannel):
            assert self.loaded is not None
            channel.get(self.loaded)
            return self.loaded
        channel.begin_read()
        return channel.tensor

    def _give_back(self, channel: Channel) -> None:
        if not isinstance(channel, SharedChannel):
            channel.end_read()

    def _finish(self, item: Item, g: int, part: int, total: RegisterHandle, channel: Channel) -> None:
        """The epilogue; tiles of V have a copy of the code without rotation, as what is given back is read in one."""
        if not self.p.problem.rotated:
            self._columns(item, g, part, total, channel, rotated=False)
        else:
            with self.k.when(item.rotated):
                self._columns(item, g, part, total, channel, rotated=True)
            with self.k.when(item.plain):
                self._columns(item, g, part, total, channel, rotated=False)

    def _columns(
        self, item: Item, g: int, part: int, total: RegisterHandle, channel: Channel, *, rotated: bool
    ) -> None:
        """Some columns at a time, with the next cosines and sines on their way."""
        k, p, memory, epilogue = self.k, self.p, self.memory, self.memory.epilogue
        assert self.sums is not None
        first, width = part * p.part_n, p.columns

        def load(col: int) -> None:
            if rotated:
                epilogue.load(memory.row(item, g), item.head_col, first + col)

        load(0)
        for col in range(0, p.part_n, width):
            if col + width < p.part_n:
                load(col + width)
            k.elementwise("copy", self.sums, total.columns(col, width))
            if col + width == p.part_n:
                self._give_back(channel)
            done = epilogue.apply(self.sums, first + col, rotated=rotated)
            memory.put(item, g, part, done, col // (1 + p.problem.gated))
