"""The memory system as one representative group of SMs sees it: the tile pass says what the rest of the chip does.

For each access position of the representative the tile pass has recorded which pieces come from DRAM and how many bytes
the whole chip moves at L2 and DRAM for each byte of the representative, both counted as L2 serves them
(`service_bytes`). Where the others read is not recorded, only how much: they read from all channels alike, and what
they write fills all write buffers alike. Buffers begin at different levels, so that channels write one after the other;
the representative's own accesses wait for the channels of their addresses.
"""

from __future__ import annotations

from heddle.sim.core.bits import ctz
from heddle.sim.core.memory_dram import Buffer, channel_of, duration, first_fill, piece_address
from heddle.sim.core.memory_layout import (
    BATCH,
    BATCHES,
    CHANNEL_BASE,
    CHANNEL_COEFFICIENT,
    CHANNELS,
    DRAM_COEFFICIENT,
    DRAM_DONE,
    DRAM_FREE,
    DRAM_LEAD,
    DRAM_WRITTEN,
    L2_COEFFICIENT,
    L2_FREE,
    L2_LEAD,
    LAST_CHANNEL,
    NEXT_BATCH,
    READ_FREE,
    RECORD_DRAM_REACH,
    RECORD_ITEMS,
    RECORD_L2,
    RECORD_L2_REACH,
    RECORD_READ,
    RECORD_TABLE,
    RECORD_WORDS,
    RECORD_WRITE,
    STREAM_PIECE_BYTES,
    STREAMS,
    TABLE_FIRST_STEP,
    TABLE_OFFSET,
    TABLE_STEPS,
    TABLE_WORDS,
    TAKEN,
    TURNAROUND,
    UNIT,
)


def find_record(mem: Buffer, stream: int, item: int, step: int) -> int:
    """Return the offset of the tile pass's record for one access position, 0 if it has none."""
    if item < 0 or item >= mem[RECORD_ITEMS] or stream >= mem[STREAMS]:
        return 0
    table = mem[RECORD_TABLE] + (item * mem[STREAMS] + stream) * TABLE_WORDS
    index = step - mem[table + TABLE_FIRST_STEP]
    if index < 0 or index >= mem[table + TABLE_STEPS]:
        return 0
    return int(mem[table + TABLE_OFFSET] + index * RECORD_WORDS)


def represent_l2(mem: Buffer, now: int, arrival: int, record: int, nbytes: int, holds: bool) -> int:
    """Charge L2 with what the whole chip moves while the representative moves `nbytes`; return when it is served.

    In the first round the representative comes after all other SMs; from then on they are ahead of it by the longest
    wait that it had (the lead), as far as they can be (the record's reach). A wait counts only if it `holds` the SM
    back: nothing in an SM waits for a store that is queued at L2.
    """
    own = duration(nbytes, mem[L2_COEFFICIENT])
    length = max(own, duration((nbytes * mem[record + RECORD_L2]) >> 16, mem[L2_COEFFICIENT]))
    start = max(mem[L2_FREE], now - mem[L2_LEAD])
    mem[L2_FREE] = start + length
    served = max(start + length, arrival + own)
    if holds:
        reach = duration(mem[record + RECORD_L2_REACH], mem[L2_COEFFICIENT]) - own
        mem[L2_LEAD] = max(mem[L2_LEAD], min(served - arrival - own, reach))
    return int(served)


def channel_free(mem: Buffer, channel: int, start: int) -> int:
    """Return from when on a channel (its offset) is free for work that may begin at `start`, in grains.

    All channels read alike, so a channel that has written is described by how far it is beyond that: it stores its free
    time less DRAM_DONE. `start` is at least the free time of a channel that has not written.
    """
    return int(max(mem[channel] + mem[DRAM_DONE], start))


def next_batch(mem: Buffer) -> int:
    """Return how many bytes the chip must have given to all write buffers until the next one is full."""
    channels = mem[CHANNELS]
    channel = mem[mem[CHANNEL_BASE] + 2 * channels + mem[BATCHES] % channels]
    return int(((mem[BATCHES] // channels + 1) * mem[BATCH] - first_fill(mem, channel)) * channels)


def give_to_buffers(mem: Buffer, start: int, nbytes: int) -> None:
    """Spread what leaves L2 over all write buffers; a channel writes its buffer when it is full, behind other work."""
    mem[DRAM_WRITTEN] += nbytes
    while mem[DRAM_WRITTEN] >= mem[NEXT_BATCH]:
        place = mem[CHANNEL_BASE] + 2 * mem[CHANNELS] + mem[BATCHES] % mem[CHANNELS]
        channel = mem[CHANNEL_BASE] + mem[place]
        length = duration(mem[BATCH], mem[CHANNEL_COEFFICIENT])
        if mem[DRAM_DONE] > mem[channel + mem[CHANNELS]]:  # it has read since it last wrote
            length += mem[TURNAROUND]
        mem[channel] = channel_free(mem, channel, start) + length - mem[DRAM_DONE]
        mem[channel + mem[CHANNELS]] = mem[DRAM_DONE]
        mem[DRAM_FREE] += length // mem[CHANNELS]
        mem[LAST_CHANNEL] = max(mem[LAST_CHANNEL], mem[channel])
        mem[BATCHES] += 1
        mem[NEXT_BATCH] = next_batch(mem)


def last_free(mem: Buffer, start: int, row: int, block: int, mask: int) -> int:
    """Return from when on the last of the channels is free on which pieces of a block lie, in grains."""
    if mem[LAST_CHANNEL] + mem[DRAM_DONE] <= start:  # all are alike
        return start
    size, free = mem[row + STREAM_PIECE_BYTES], start
    mask = int(mask)
    while mask != 0:
        address = piece_address(mem, row, block, ctz(mask))
        end = address + size
        while address < end:
            free = max(free, channel_free(mem, channel_of(mem, address), start))
            address += mem[UNIT] - address % mem[UNIT]
        mask &= mask - 1
    return int(free)


def represent_dram(mem: Buffer, now: int, record: int, nbytes: int, row: int, block: int, mask: int) -> tuple[int, int]:
    """Charge DRAM with what the chip reads and writes meanwhile: all channels read alike and write in turns.

    Return when it has done so, in grains: as one server, and on the last of the channels on which the representative's
    own pieces (`mask`) lie. The others' requests come up to the lead before its own, if DRAM has been busy since; where
    it has not, they wait for writes together with the representative.
    """
    earliest = now - mem[DRAM_LEAD]
    busy = mem[DRAM_FREE] > earliest
    start = max(mem[READ_FREE], earliest)
    mem[DRAM_FREE] = max(mem[DRAM_FREE], earliest)
    give_to_buffers(mem, start if busy else max(start, now), (nbytes * mem[record + RECORD_WRITE]) >> 16)
    free = last_free(mem, start, row, block, mask)
    length = duration((nbytes * mem[record + RECORD_READ]) >> 16, mem[DRAM_COEFFICIENT])
    mem[DRAM_FREE] += length
    mem[READ_FREE] = start + length
    mem[DRAM_DONE] += length
    return int(mem[DRAM_FREE]), int(free + length)


def lead_dram(mem: Buffer, record: int, wait: int) -> None:
    """Let the other SMs be ahead of the representative by a wait that it had, as far as they can be."""
    reach = duration(mem[record + RECORD_DRAM_REACH], mem[DRAM_COEFFICIENT])
    mem[DRAM_LEAD] = max(mem[DRAM_LEAD], min(wait, reach))


def read_for_representative(
    mem: Buffer, now: int, served: int, record: int, nbytes: int, row: int, block: int, mask: int
) -> int:
    """Charge DRAM with what the chip does meanwhile; return when the representative's pieces leave it, 0 if none do."""
    together, free = represent_dram(mem, now, record, nbytes, row, block, mask)
    if mask == 0:
        return 0
    last = duration(min(nbytes, mem[UNIT]), mem[CHANNEL_COEFFICIENT])
    lead_dram(mem, record, max(together, served + last) - served - last)
    return int(max(free, served + last))


def write_for_representative(
    mem: Buffer, now: int, served: int, record: int, nbytes: int, row: int, block: int, mask: int
) -> None:
    """Charge DRAM likewise; note when its write buffers have taken what the representative's store drives out.

    Nobody knows where that lies; it waits for the channels of what is stored instead.
    """
    together, free = represent_dram(mem, now, record, nbytes, row, block, mask)
    if mask != 0:
        mem[TAKEN] = max(0, free - duration(mem[BATCH], mem[CHANNEL_COEFFICIENT]))
        lead_dram(mem, record, together - served)
