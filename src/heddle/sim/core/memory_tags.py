"""L2 tags: who is resident, who leaves, what is written back.

A block of global memory has one entry, found by its number without a search; resident blocks form one list in order of
use. Everything is O(1) an access but for the pieces of the accessed block. Neighbours: `memory` (timing of a request),
`memory_play` (the tile pass).
"""

from __future__ import annotations

from heddle.sim.core.bits import ctz
from heddle.sim.core.memory_dram import Buffer, piece_address, read_channels, write_channels
from heddle.sim.core.memory_layout import (
    CAPACITY,
    CHUNK_BYTES,
    DRAM_READ,
    DRAM_WRITE,
    ENTRY_DIRTY,
    ENTRY_NEWER,
    ENTRY_OLDER,
    ENTRY_RESIDENT,
    ENTRY_STREAM,
    FLUSH_CHUNKS,
    FLUSH_DIRTY,
    FLUSH_LEFT,
    FLUSH_PENDING,
    HEAD,
    KIND_LOAD,
    L2_WRITE_COST,
    STAMP,
    STREAM_ENTRIES,
    STREAM_PIECE_BYTES,
    STREAM_STRIDE,
    TAIL,
    TAKEN,
    USED,
)


def service_bytes(mem: Buffer, kind: int, nbytes: int) -> int:
    """Return what an access costs at L2, in read bytes: a written byte takes more service than a read one."""
    if kind == KIND_LOAD:
        return nbytes
    return int((nbytes * mem[L2_WRITE_COST] + 32768) >> 16)


def unlink(mem: Buffer, entry: int) -> None:
    """Take an entry out of the list of use."""
    newer, older = mem[entry + ENTRY_NEWER], mem[entry + ENTRY_OLDER]
    if newer != 0:
        mem[newer + ENTRY_OLDER] = older
    else:
        mem[HEAD] = older
    if older != 0:
        mem[older + ENTRY_NEWER] = newer
    else:
        mem[TAIL] = newer


def touch(mem: Buffer, entry: int) -> None:
    """Make an entry the most recently used one; entries with nothing resident are not in the list yet."""
    if mem[HEAD] == entry:
        return
    if mem[entry + ENTRY_RESIDENT] != 0:
        unlink(mem, entry)
    head = mem[HEAD]
    mem[entry + ENTRY_NEWER] = 0
    mem[entry + ENTRY_OLDER] = head
    if head != 0:
        mem[head + ENTRY_NEWER] = entry
    else:
        mem[TAIL] = entry
    mem[HEAD] = entry


def count_pieces(mask: int) -> int:
    """Return the number of set bits of a mask of pieces."""
    count = 0
    while mask != 0:
        mask &= mask - 1
        count += 1
    return count


def write_back(mem: Buffer, now: int, entry: int) -> None:
    """Write the dirty pieces of a leaving block from `now` on; a store that drove them out is held until TAKEN."""
    row = mem[entry + ENTRY_STREAM]
    size = mem[row + STREAM_PIECE_BYTES]
    block = (entry - mem[row + STREAM_ENTRIES]) // mem[row + STREAM_STRIDE]
    dirty = int(mem[entry + ENTRY_DIRTY])
    while dirty != 0:
        mem[DRAM_WRITE] += size
        if mem[STAMP] == 0:
            address = piece_address(mem, row, block, ctz(dirty))
            mem[TAKEN] = max(mem[TAKEN], write_channels(mem, now, address, size))
        dirty &= dirty - 1
    mem[entry + ENTRY_DIRTY] = 0


def drop_flushed(mem: Buffer, now: int, nbytes: int) -> int:
    """Replace data of a flush, which are older than all of the kernel's, and return how many bytes were replaced."""
    nbytes = min(nbytes, mem[FLUSH_LEFT])
    mem[FLUSH_LEFT] -= nbytes
    mem[FLUSH_PENDING] += nbytes * mem[FLUSH_DIRTY]
    while mem[FLUSH_PENDING] >= CHUNK_BYTES << 16:
        mem[FLUSH_PENDING] -= CHUNK_BYTES << 16
        mem[DRAM_WRITE] += CHUNK_BYTES
        if mem[STAMP] == 0:
            address = mem[FLUSH_CHUNKS] * CHUNK_BYTES
            mem[TAKEN] = max(mem[TAKEN], write_channels(mem, now, address, CHUNK_BYTES))
        mem[FLUSH_CHUNKS] += 1
    return nbytes


def make_room(mem: Buffer, now: int) -> None:
    """Evict least recently used blocks until the resident bytes fit; the block in use (the head) stays."""
    over = mem[USED] + mem[FLUSH_LEFT] - mem[CAPACITY]
    if over > 0 and mem[FLUSH_LEFT] > 0:
        over -= drop_flushed(mem, now, over)
    while over > 0 and mem[TAIL] != mem[HEAD]:
        entry = mem[TAIL]
        row = mem[entry + ENTRY_STREAM]
        if mem[entry + ENTRY_DIRTY] != 0:
            write_back(mem, now, entry)
        freed = count_pieces(mem[entry + ENTRY_RESIDENT]) * mem[row + STREAM_PIECE_BYTES]
        unlink(mem, entry)
        mem[entry + ENTRY_RESIDENT] = 0
        mem[USED] -= freed
        over -= freed


def allocate(mem: Buffer, now: int, row: int, entry: int, missing: int) -> None:
    """Add the `missing` pieces of an entry that was just touched, and evict what no longer fits."""
    mem[entry + ENTRY_STREAM] = row
    mem[entry + ENTRY_RESIDENT] |= missing
    mem[USED] += count_pieces(missing) * mem[row + STREAM_PIECE_BYTES]
    make_room(mem, now)


def fetch(mem: Buffer, now: int, earliest: int, row: int, block: int, missing: int) -> int:
    """Read the `missing` pieces of a block from DRAM and return when the last byte leaves, in grains."""
    size = mem[row + STREAM_PIECE_BYTES]
    end = earliest
    missing = int(missing)
    while missing != 0:
        mem[DRAM_READ] += size
        if mem[STAMP] == 0:
            end = max(end, read_channels(mem, now, earliest, piece_address(mem, row, block, ctz(missing)), size))
        missing &= missing - 1
    return end
