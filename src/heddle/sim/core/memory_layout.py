"""Layout of the memory system's flat int64 buffer, and its fixed-point arithmetic.

The buffer is a header of `HEADER_WORDS` named words (offsets below), then DRAM channels, SM ports, one row a stream,
the records of the representative mode, and one entry for each block of global memory. Built by
`heddle.sim.memory_system`; used by `memory*` here. Semantics: docs/reference/engine.md, section 5.

Times in the buffer are integers of 1/65536 cycle ("grains"): at 13,000 bytes a cycle a 32-byte request still lasts 158
grains, so that the rounding of a duration stays below 0.4 %. A duration is (bytes * coefficient + 2**23) >> 24 with
coefficient = round(2**40 / bytes a cycle).
"""

from __future__ import annotations

GRAIN_BITS = 16  # grains a cycle: 2**16
TICK_GRAIN_BITS = 8  # grains a tick of the engine (1/256 cycle): 2**8
COEFFICIENT_BITS = 40  # coefficient of a rate r: round(2**40 / r)
DURATION_SHIFT = COEFFICIENT_BITS - GRAIN_BITS
DURATION_HALF = 1 << (DURATION_SHIFT - 1)
CHUNK_BYTES = 1024  # what passes the port of an SM last
PIECES = 62  # most separately tracked pieces of a block: bits of a non-negative mask

MODE_CHIP, MODE_SM, MODE_REPRESENTATIVE = 0, 1, 2
KIND_LOAD, KIND_STORE, KIND_REDUCE = 0, 1, 2

# header words
MODE = 0
L2_FREE = 1  # next free time of the L2 server
L2_COEFFICIENT = 2
L2_LEAD = 3  # representative mode: how far the first SM is ahead of the representative at L2
DRAM_FREE = 4  # representative mode: all channels as one server
DRAM_COEFFICIENT = 5
DRAM_LEAD = 6
CHANNELS = 7
CHANNEL_BASE = 8  # next free times, what each channel has to write (`memory_dram`), in which order they write first
CHANNEL_COEFFICIENT = 9
PORTS = 10
PORT_BASE = 11  # next free times towards the SMs, then from them
PORT_COEFFICIENT = 12
NEAR = 13  # grains from the end of L2 service to the SM's port
FAR = 14
DRAM_EXTRA = 15  # grains
STORE_LATENCY = 16  # cycles
CAPACITY = 17  # bytes
USED = 18  # bytes of resident pieces
HEAD = 19  # most recently used entry, 0 if none
TAIL = 20  # least recently used entry
FLUSH_LEFT = 21  # bytes that still hold data of a flush
FLUSH_DIRTY = 22  # dirty share of them, in 1/65536
FLUSH_PENDING = 23  # dirty flush bytes that left and are not yet a whole chunk, in 1/65536 byte
FLUSH_CHUNKS = 24  # chunks of flush data written back so far
STREAMS = 25
STREAM_BASE = 26
STAMP = 27  # not 0: the tile pass plays this lockstep step, and no server moves
FIRST_SM = 28  # chip-wide number of simulated SM 0
FOOTPRINT = 29  # bytes of all blocks of all streams
RECORD_TABLE = 30  # representative mode: offset of the table [item ordinal, stream] -> records
RECORD_ITEMS = 31
COUNTERS = 32  # first counter
L2_READ = 32  # bytes; a multicast counts once
L2_WRITE = 33
DRAM_READ = 34
DRAM_WRITE = 35
HIT = 36  # load bytes found in L2
MISS = 37  # load bytes fetched from DRAM
MERGE = 38  # load bytes that joined a transfer on its way
OUTSIDE = 39  # requests for blocks outside their tensor
COUNTERS_END = 40
L2_WRITE_COST = 40  # L2 service of a written byte in read bytes, in 1/65536
UNIT = 41  # consecutive bytes on one DRAM channel and in one partition of L2
TURNAROUND = 42  # grains that a channel idles for one change to writes and back
TAKEN = 43  # grains: when memory has taken the data of the last store
BATCH = 44  # bytes that a channel collects and then writes together
READ_FREE = 45  # this and what follows, representative mode: next free time of a channel that has not written
DRAM_DONE = 46  # grains that every channel has read so far
DRAM_WRITTEN = 47  # bytes that the chip has given to write buffers so far
BATCHES = 48  # batches written so far
NEXT_BATCH = 49  # DRAM_WRITTEN at which the next buffer is full
LAST_CHANNEL = 50  # the latest free time of a channel that has written, less DRAM_DONE
HEADER_WORDS = 56
CHANNEL_WORDS = 3

# row of a stream
STREAM_ENTRIES = 0  # offset of the entry of block 0
STREAM_BLOCKS = 1
STREAM_STRIDE = 2  # words of an entry
STREAM_PIECES = 3
STREAM_PIECE_BYTES = 4
STREAM_ADDRESS = 5  # of block 0 in global memory
STREAM_WORDS = 8

# entry of a block
ENTRY_NEWER = 0  # neighbour in the list of use, 0 at the end
ENTRY_OLDER = 1
ENTRY_RESIDENT = 2  # mask of pieces
ENTRY_DIRTY = 3
ENTRY_STREAM = 4  # a stream row that describes the block (0: never used)
ENTRY_READY = 5  # for each piece, when its data are there
ENTRY_WORDS = 5  # without the ready times

# record table row and record
TABLE_OFFSET = 0
TABLE_FIRST_STEP = 1
TABLE_STEPS = 2
TABLE_WORDS = 3
RECORD_LATE = 0  # mask of pieces that come from DRAM; of a store: not 0 if it drives out dirty data
RECORD_L2 = 1  # bytes of the chip at L2 for each byte of the representative, in 1/65536
RECORD_READ = 2  # the same for what DRAM reads
RECORD_WRITE = 3  # and for what it has to write
RECORD_L2_REACH = 4  # bytes of the other SMs by which they can be ahead
RECORD_DRAM_REACH = 5
RECORD_SIDE = 6  # the block's place among two units, which decides near or far
RECORD_WORDS = 7
