"""What the engine's exact fast-forward needs of memory: relative state, how long accesses repeat, and the jump itself.

A period may be skipped if (1) the relative state at its two ends is equal and (2) every stream that advances in it
repeats (`memory_repeats`). With tags (modes `chip` and `sm`) the relative state contains the absolute counters of
misses, merges and DRAM bytes, so it is equal only if nothing was fetched, joined or evicted in between; and a stream
repeats only where the blocks to come are resident and no block can ever be evicted. A streaming miss never repeats.
In mode `representative` a period repeats if DRAM writes nothing in it and all channels are alike; then it does not
matter which of them an access reads.
"""

from __future__ import annotations

from heddle.sim.core.memory_dram import Buffer
from heddle.sim.core.memory_layout import (
    CAPACITY,
    CHANNEL_BASE,
    CHANNELS,
    COUNTERS,
    COUNTERS_END,
    DRAM_DONE,
    DRAM_FREE,
    DRAM_LEAD,
    DRAM_READ,
    DRAM_WRITE,
    DRAM_WRITTEN,
    ENTRY_READY,
    ENTRY_RESIDENT,
    FAR,
    FOOTPRINT,
    GRAIN_BITS,
    L2_FREE,
    L2_LEAD,
    LAST_CHANNEL,
    MERGE,
    MISS,
    MODE,
    MODE_REPRESENTATIVE,
    NEAR,
    PORT_BASE,
    PORTS,
    READ_FREE,
    RECORD_WORDS,
    STREAM_BASE,
    STREAM_BLOCKS,
    STREAM_ENTRIES,
    STREAM_PIECE_BYTES,
    STREAM_PIECES,
    STREAM_STRIDE,
    STREAM_WORDS,
    UNIT,
    USED,
)
from heddle.sim.core.memory_represent import find_record

SERVER_WORDS = 4
WRITE_WORDS = 3
TAG_WORDS = 5


def memory_state_words(mem: Buffer) -> int:
    """Return how many words `memory_relative` writes."""
    if mem[MODE] == MODE_REPRESENTATIVE:
        return int(SERVER_WORDS + 2 * mem[PORTS] + WRITE_WORDS)
    return int(SERVER_WORDS + 2 * mem[PORTS] + 2 * mem[CHANNELS] + TAG_WORDS)


def memory_relative(mem: Buffer, t: int, out: Buffer, offset: int) -> int:
    """Write the state relative to cycle `t` to out[offset...] and return the number of words.

    Two equal states answer equal requests equally, as far as `memory_repeats` says that the requests are equal.
    """
    now = t << GRAIN_BITS
    out[offset] = max(mem[L2_FREE] - now, -mem[L2_LEAD])
    out[offset + 1] = mem[L2_LEAD]
    out[offset + 2] = max(mem[DRAM_FREE] - now, -mem[DRAM_LEAD])
    out[offset + 3] = mem[DRAM_LEAD]
    at = offset + SERVER_WORDS
    for port in range(2 * mem[PORTS]):
        out[at + port] = max(mem[mem[PORT_BASE] + port] - now, 0)
    at += 2 * mem[PORTS]
    if mem[MODE] == MODE_REPRESENTATIVE:
        alike = mem[LAST_CHANNEL] + mem[DRAM_DONE] <= max(mem[READ_FREE], now - mem[DRAM_LEAD])
        out[at] = max(mem[READ_FREE] - now, -mem[DRAM_LEAD])
        out[at + 1] = mem[DRAM_WRITTEN]
        out[at + 2] = 0 if alike else now + 1  # never twice
        return int(at + WRITE_WORDS - offset)
    for channel in range(mem[CHANNELS]):
        out[at + 2 * channel] = max(mem[mem[CHANNEL_BASE] + channel] - now, 0)
        out[at + 2 * channel + 1] = mem[mem[CHANNEL_BASE] + mem[CHANNELS] + channel]
    at += 2 * mem[CHANNELS]
    out[at] = mem[MISS]
    out[at + 1] = mem[MERGE]
    out[at + 2] = mem[DRAM_READ]
    out[at + 3] = mem[DRAM_WRITE]
    out[at + 4] = mem[USED]
    return int(at + TAG_WORDS - offset)


def equal_records(mem: Buffer, first: int, second: int) -> bool:
    """Tell whether two records exist and say the same."""
    if first == 0 or second == 0:
        return False
    differences = 0
    for word in range(RECORD_WORDS):
        differences |= mem[first + word] ^ mem[second + word]
    return bool(differences == 0)


def block_is_there(mem: Buffer, now: int, stream: int, block: int) -> bool:
    """Tell whether all pieces of a block are resident and none is on its way."""
    row = mem[STREAM_BASE] + stream * STREAM_WORDS
    if block < 0 or block >= mem[row + STREAM_BLOCKS]:
        return False
    entry = mem[row + STREAM_ENTRIES] + block * mem[row + STREAM_STRIDE]
    for piece in range(mem[row + STREAM_PIECES]):
        if (mem[entry + ENTRY_RESIDENT] >> piece) & 1 == 0 or mem[entry + ENTRY_READY + piece] > now:
            return False
    return True


def memory_repeats(
    mem: Buffer,
    t: int,
    stream: int,
    item_ordinal: int,
    step: int,
    period: int,
    block: int,
    block_step: int,
    limit: int,
) -> int:
    """Return for how many further periods (at most `limit`) the accesses of a stream repeat, as seen in cycle `t`.

    `step` is the next step that the stream accesses, `period` (at least 1) the steps that it advances in one period:
    the last period had steps step - period to step - 1. `block` is the block of `step`, `block_step` the blocks to the
    next step. A stream that does not advance in the period needs no call. Cost: at most period * limit look-ups.
    """
    representative = mem[MODE] == MODE_REPRESENTATIVE
    if not representative:
        row = mem[STREAM_BASE] + stream * STREAM_WORDS
        block_bytes = mem[row + STREAM_PIECES] * mem[row + STREAM_PIECE_BYTES]
        changes_side = mem[NEAR] != mem[FAR] and block_step * period * block_bytes % (2 * mem[UNIT]) != 0
        if changes_side or mem[FOOTPRINT] > mem[CAPACITY]:
            return 0
    for repeat in range(limit):
        for i in range(period):
            ahead = repeat * period + i
            if representative:
                here = find_record(mem, stream, item_ordinal, step + ahead)
                before = find_record(mem, stream, item_ordinal, step + ahead - period)
                same = equal_records(mem, here, before)
            else:
                same = block_is_there(mem, t << GRAIN_BITS, stream, block + ahead * block_step)
            if not same:
                return repeat
    return limit


def memory_run_length(mem: Buffer, stream: int, item_ordinal: int, step: int) -> int:
    """Return how many steps from `step` on have the same record (representative mode; 0 if there is none)."""
    first = find_record(mem, stream, item_ordinal, step)
    length = 0
    while equal_records(mem, first, find_record(mem, stream, item_ordinal, step + length)):
        length += 1
    return length


def memory_skip(mem: Buffer, cycles: int, before: Buffer, offset: int, periods: int) -> None:
    """Jump over `periods` equal periods that take `cycles` together.

    before[offset...]: the counters mem[COUNTERS:COUNTERS_END] at the start of the last period, which is one of those
    that repeat. Data on their way are not shifted: none of the skipped accesses waits for them.
    """
    grains = cycles << GRAIN_BITS
    mem[L2_FREE] += grains
    mem[DRAM_FREE] += grains
    mem[READ_FREE] += grains
    if mem[MODE] != MODE_REPRESENTATIVE:  # there channels are counted from those that have not written
        for server in range(mem[CHANNEL_BASE], mem[CHANNEL_BASE] + mem[CHANNELS]):
            mem[server] += grains
    for server in range(mem[PORT_BASE], mem[PORT_BASE] + 2 * mem[PORTS]):
        mem[server] += grains
    for counter in range(COUNTERS, COUNTERS_END):
        mem[counter] += periods * (mem[counter] - before[offset + counter - COUNTERS])
