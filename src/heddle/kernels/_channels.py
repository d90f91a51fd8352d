"""How a role of four wefts hands a tensor to another: in shared registers, by bits or barriers, or in shared memory."""

from __future__ import annotations

from typing import Protocol

from heddle.kernels._warp import GROUP_WARPS
from heddle.lang import Builder, RegisterHandle


class Channel(Protocol):
    """A tensor of one producer and one consumer. Each writes or reads between its two calls, once a datum."""

    tensor: RegisterHandle

    def begin_write(self) -> None:
        """Wait until the datum before has been read."""

    def end_write(self) -> None:
        """The datum is there."""

    def begin_read(self) -> None:
        """Wait for the datum."""

    def end_read(self) -> None:
        """The datum has been read for the last time."""


class BitChannel:
    """Every access waits for its own registers; the compiler binds the statements to the last accesses."""

    def __init__(self, k: Builder, name: str, shape: tuple[int, int], dtype: str) -> None:
        self.k, self.tensor = k, k.pool(name, shape, dtype)[0]

    def begin_write(self) -> None:
        """Nothing to wait for: each write waits for its own register."""

    def end_write(self) -> None:
        """State the tensor full."""
        self.k.set_busy_bit(self.tensor, "full")

    def begin_read(self) -> None:
        """Nothing to wait for."""

    def end_read(self) -> None:
        """State the tensor empty."""
        self.k.set_busy_bit(self.tensor, "empty")


class Phases:
    """Two mbarriers, at which all four wefts of a role arrive: whole phases of a hand-over."""

    def __init__(self, k: Builder, name: str) -> None:
        self.ring = k.ring(f"{name}_ring", 1)
        self.full = k.barrier(f"{name}_full", arrivals=GROUP_WARPS)
        self.empty = k.barrier(f"{name}_empty", arrivals=GROUP_WARPS)

    def begin_write(self) -> None:
        """Wait for the consumers' arrivals."""
        self.empty.wait(self.ring, flip=True)

    def end_write(self) -> None:
        """Arrive for the consumers."""
        self.full.arrive(self.ring)
        self.ring.advance()

    def begin_read(self) -> None:
        """Wait for the producers' arrivals."""
        self.full.wait(self.ring)

    def end_read(self) -> None:
        """Arrive for the producers."""
        self.empty.arrive(self.ring)
        self.ring.advance()


class BarrierChannel(Phases):
    """A tensor in registers that a subpartition shares."""

    def __init__(self, k: Builder, name: str, shape: tuple[int, int], dtype: str) -> None:
        super().__init__(k, name)
        self.tensor = k.pool(name, shape, dtype)[0]


class SharedChannel(Phases):
    """A tensor in shared memory, where no registers are shared: both sides copy."""

    def __init__(self, k: Builder, name: str, shape: tuple[int, int], dtype: str) -> None:
        super().__init__(k, name)
        self.k, self.tile = k, k.shared(name, shape, dtype)

    def put(self, registers: RegisterHandle) -> None:
        """Write the datum, visible to matrix instructions, too."""
        self.begin_write()
        self.k.store(self.tile[:], registers)
        self.k.fence()
        self.end_write()

    def get(self, registers: RegisterHandle) -> None:
        """Read the datum and give its place back."""
        self.begin_read()
        self.k.load(registers, self.tile[:])
        self.end_read()
