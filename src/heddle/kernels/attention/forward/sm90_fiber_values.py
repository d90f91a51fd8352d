"""P V of H100's attention in mode fiber: adding up values block by block, however roles are ordered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from heddle.kernels._channels import BarrierChannel, SharedChannel
from heddle.kernels.attention.forward.sm90_fiber_memory import Memory
from heddle.lang import Builder, Item, RegisterHandle, SharedBox

Channel = TypeVar("Channel", BarrierChannel, SharedChannel)


class ValueProducts(ABC):
    """Adds up the values of all blocks of keys in registers of the role, and hands over the output."""

    k: Builder
    memory: Memory
    output: list[RegisterHandle]

    def value(self, item: Item, block: int, more: bool) -> None:
        """Values of all blocks of keys, then the output."""
        k = self.k
        self._values(block, first=True)
        if more:
            with k.when(item.more):
                for _ in k.range(item.more, name="values"):
                    self._values(block, first=False)
        self._rescale(block)
        self.memory.put_output(block, self.output[block])

    def _values(self, block: int, first: bool) -> None:
        """One block of keys: rescale what there is, add."""
        values = self.memory.values
        if not first:
            self._rescale(block)
        values.wait()
        self._add(block, first)
        values.release()

    @abstractmethod
    def _add(self, block: int, first: bool) -> None:
        """Multiply the weights of a block by the values that have come, and give the weights back."""

    @abstractmethod
    def _rescale(self, block: int) -> None:
        """Multiply the output of a block by the factor of its rows."""


class OrderedByBarriers(ValueProducts, Generic[Channel]):
    """Products of four wefts together, waited for as a group: what the phased and the literal form share."""

    weights: list[Channel]

    def _add(self, block: int, first: bool) -> None:
        k, weights, values = self.k, self.weights[block], self.memory.values.current
        weights.begin_read()
        k.mma(self.output[block], self._first_operand(block), values, accumulate=not first, transposed=True)
        k.mma_commit()
        k.mma_wait(pending=0)
        weights.end_read()

    @abstractmethod
    def _first_operand(self, block: int) -> RegisterHandle | SharedBox:
        """Where the weights of a block are."""
