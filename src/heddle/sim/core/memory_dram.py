"""DRAM channels: bytes of consecutive addresses on one channel, writes collected and written together.

A channel reads in the order of requests. What leaves L2 joins the channel's write buffer; when that holds a batch, it
is written behind what the channel has to do, and the channel turns to writes and back (if it has read since it last
wrote). Semantics: docs/reference/engine.md, section 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.sim.core.memory_layout import (
    BATCH,
    CHANNEL_BASE,
    CHANNEL_COEFFICIENT,
    CHANNELS,
    DURATION_HALF,
    DURATION_SHIFT,
    STREAM_ADDRESS,
    STREAM_PIECE_BYTES,
    STREAM_PIECES,
    TURNAROUND,
    UNIT,
)

Buffer = NDArray[np.int64]

READ_SINCE_WRITE = 1  # lowest bit of a channel's write word; the rest is the number of buffered bytes


def duration(nbytes: int, coefficient: int) -> int:
    """Return how long `nbytes` take, in grains."""
    return (nbytes * coefficient + DURATION_HALF) >> DURATION_SHIFT


def mix(x: int) -> int:
    """Scramble a non-negative number below 2**31 (multiply and fold, all within 62 bits)."""
    x = ((x ^ (x >> 15)) * 0x1E3779B1) & 0x7FFFFFFF
    x = ((x ^ (x >> 13)) * 0x2545F491) & 0x7FFFFFFF
    return x ^ (x >> 16)


def first_fill(mem: Buffer, channel: int) -> int:
    """Return the bytes that earlier kernels left in the write buffer of a channel, by its number; no two are alike."""
    return int(mix(channel + 1) % mem[BATCH])


def channel_of(mem: Buffer, address: int) -> int:
    """Return the offset of an address's channel: units take turns, each round rotated by a hash."""
    unit, channels = address // mem[UNIT], mem[CHANNELS]
    return int(mem[CHANNEL_BASE] + (unit + mix((unit // channels) & 0x7FFFFFFF)) % channels)


def piece_address(mem: Buffer, row: int, block: int, piece: int) -> int:
    """Return the address of a piece of a block of stream row `row`."""
    place = block * mem[row + STREAM_PIECES] + piece
    return int(mem[row + STREAM_ADDRESS] + place * mem[row + STREAM_PIECE_BYTES])


def read_channels(mem: Buffer, now: int, earliest: int, address: int, nbytes: int) -> int:
    """Read `nbytes` from `address` on and return when the last of them leaves its channel, in grains.

    Channels are charged from `now`; nothing leaves before `earliest` plus its own duration.
    """
    end = earliest
    while nbytes > 0:
        part = min(nbytes, mem[UNIT] - address % mem[UNIT])
        length = duration(part, mem[CHANNEL_COEFFICIENT])
        channel = channel_of(mem, address)
        free = max(mem[channel], now) + length
        mem[channel] = free
        mem[channel + mem[CHANNELS]] |= READ_SINCE_WRITE
        end = max(end, max(free, earliest + length))
        nbytes -= part
        address += part
    return end


def write_channels(mem: Buffer, now: int, address: int, nbytes: int) -> int:
    """Give `nbytes` to the write buffers of their channels and return when these have taken them, in grains.

    A buffer takes data while no more than a batch of work is ahead of its channel.
    """
    taken = 0
    buffered = duration(mem[BATCH], mem[CHANNEL_COEFFICIENT])
    while nbytes > 0:
        part = min(nbytes, mem[UNIT] - address % mem[UNIT])
        channel = channel_of(mem, address)
        waiting = channel + mem[CHANNELS]
        mem[waiting] += 2 * part
        if mem[waiting] >= 2 * mem[BATCH]:
            length = duration(mem[waiting] >> 1, mem[CHANNEL_COEFFICIENT])
            if mem[waiting] & READ_SINCE_WRITE != 0:
                length += mem[TURNAROUND]
            mem[channel] = max(mem[channel], now) + length
            mem[waiting] = 0
        taken = max(taken, mem[channel] - buffered)
        nbytes -= part
        address += part
    return int(taken)
