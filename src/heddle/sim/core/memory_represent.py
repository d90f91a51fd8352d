"""The memory system as one representative group of SMs sees it: the tile pass says what the rest of the chip does.

For each access position of the representative the tile pass has recorded which pieces come from DRAM and how many bytes
the whole chip moves at L2 and DRAM for each byte of the representative, both counted as L2 serves them
(`service_bytes`). All channels act as one server here.
"""

from __future__ import annotations

from heddle.sim.core.memory_dram import Buffer, duration
from heddle.sim.core.memory_layout import (
    CHANNEL_COEFFICIENT,
    DRAM_COEFFICIENT,
    DRAM_FREE,
    DRAM_LEAD,
    L2_COEFFICIENT,
    L2_FREE,
    L2_LEAD,
    RECORD_DRAM,
    RECORD_DRAM_AHEAD,
    RECORD_DRAM_REACH,
    RECORD_ITEMS,
    RECORD_L2,
    RECORD_L2_AHEAD,
    RECORD_L2_REACH,
    RECORD_TABLE,
    RECORD_WORDS,
    STREAMS,
    TABLE_FIRST_STEP,
    TABLE_OFFSET,
    TABLE_STEPS,
    TABLE_WORDS,
    TAKEN,
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

    In the first round the representative comes after all SMs of lower rank; from then on they are ahead of it by the
    longest wait that it had (the lead), as far as they can be (the record's reach). A wait counts only if it `holds`
    the SM back: nothing in an SM waits for a store that is queued at L2.
    """
    own = duration(nbytes, mem[L2_COEFFICIENT])
    length = max(own, duration((nbytes * mem[record + RECORD_L2]) >> 16, mem[L2_COEFFICIENT]))
    ahead = max(own, duration((nbytes * mem[record + RECORD_L2_AHEAD]) >> 16, mem[L2_COEFFICIENT]))
    start = max(mem[L2_FREE], now - mem[L2_LEAD])
    mem[L2_FREE] = start + length
    served = max(start + ahead, arrival + own)
    if holds:
        reach = duration(mem[record + RECORD_L2_REACH], mem[L2_COEFFICIENT]) - own
        mem[L2_LEAD] = max(mem[L2_LEAD], min(served - arrival - own, reach))
    return int(served)


def represent_dram(mem: Buffer, now: int, record: int, nbytes: int) -> int:
    """Charge DRAM likewise; return when it comes to the representative's own work, in grains."""
    length = duration((nbytes * mem[record + RECORD_DRAM]) >> 16, mem[DRAM_COEFFICIENT])
    start = max(mem[DRAM_FREE], now - mem[DRAM_LEAD])
    mem[DRAM_FREE] = start + length
    return int(start + duration((nbytes * mem[record + RECORD_DRAM_AHEAD]) >> 16, mem[DRAM_COEFFICIENT]))


def lead_dram(mem: Buffer, record: int, wait: int) -> None:
    """Let the SMs of lower rank be ahead of the representative by a wait that it had, as far as they can be."""
    reach = duration(mem[record + RECORD_DRAM_REACH], mem[DRAM_COEFFICIENT])
    mem[DRAM_LEAD] = max(mem[DRAM_LEAD], min(wait, reach))


def read_for_representative(mem: Buffer, now: int, served: int, record: int, nbytes: int, waits: bool) -> int:
    """Charge DRAM with what the chip moves meanwhile; return when the representative's data leave it, 0 if none do."""
    ahead = represent_dram(mem, now, record, nbytes)
    if not waits:
        return 0
    last = duration(min(nbytes, mem[UNIT]), mem[CHANNEL_COEFFICIENT])
    end = max(ahead, served + last)
    lead_dram(mem, record, end - served - last)
    return int(end)


def write_for_representative(mem: Buffer, now: int, served: int, record: int, nbytes: int, waits: bool) -> None:
    """Charge DRAM likewise; note when its write buffers have taken what the representative's store drives out."""
    ahead = represent_dram(mem, now, record, nbytes)
    if waits:
        mem[TAKEN] = max(0, ahead - duration(mem[UNIT], mem[CHANNEL_COEFFICIENT]))
        lead_dram(mem, record, ahead - served)
