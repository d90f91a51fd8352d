"""DRAM channels: units of addresses, write buffers, turns of the bus (docs/reference/engine.md, section 5)."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.machine.spec import Machine
from heddle.sim.reference.servers import GRAINS, SharedServer


def mix(x: int) -> int:
    """Scramble a number of 31 bits."""
    x = ((x ^ (x >> 15)) * 0x1E3779B1) % 2**31
    x = ((x ^ (x >> 13)) * 0x2545F491) % 2**31
    return x ^ (x >> 16)


class Channel(SharedServer):
    """One channel: `waiting` bytes are in its write buffer; `has_read` since it last wrote."""

    def __init__(self, bytes_per_cycle: float, waiting: int) -> None:
        super().__init__(bytes_per_cycle)
        self.waiting = waiting
        self.has_read = False


class Dram:
    """All channels. `taken`: when the write buffers have taken what was written since somebody set it to 0, grains."""

    def __init__(self, machine: Machine, clock_mhz: float, share: int) -> None:
        channels = max(1, machine.dram_channels // share)
        rate = machine.dram_bytes_per_cycle(clock_mhz) / share / channels
        self._unit, self._batch = machine.dram_interleave_bytes, machine.dram_write_batch_bytes
        # Earlier kernels have left something in the buffers, in each a different amount.
        self._channels = [Channel(rate, mix(i + 1) % self._batch) for i in range(channels)]
        self._turnaround = round(machine.dram_turnaround_ns * clock_mhz / 1000 * GRAINS)
        self.taken = 0

    def read(self, now: int, reached: int, address: int, amount: int) -> list[int]:
        """Read bytes for a request issued at `now` that comes at `reached`; return when each part leaves."""
        ends = []
        for channel, part in self._parts(address, amount):
            channel.has_read = True
            ends.append(channel.charge(now, reached, part))
        return ends

    def write(self, now: int, address: int, amount: int) -> None:
        """Put bytes into write buffers, and write those that are full."""
        for channel, part in self._parts(address, amount):
            channel.waiting += part
            if channel.waiting >= self._batch:
                channel.charge(now, now, channel.waiting, idle=self._turnaround if channel.has_read else 0)
                channel.waiting, channel.has_read = 0, False
            self.taken = max(self.taken, channel.free - channel.length(self._batch))

    def _parts(self, address: int, amount: int) -> Iterator[tuple[Channel, int]]:
        """Cut bytes at the borders of units."""
        end = address + amount
        while address < end:
            unit = address // self._unit
            border = min(end, (unit + 1) * self._unit)
            count = len(self._channels)
            yield self._channels[(unit + mix(unit // count % 2**31)) % count], border - address
            address = border
