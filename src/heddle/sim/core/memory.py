"""The timing of one memory request: L2 service, tags, DRAM, the SM's port. Called by the engine at issue.

A request is answered at once: shared servers are charged in the order of issue (docs/explanation/memory.md says why).
All state is in one flat int64 buffer, see `memory_layout`; nothing here allocates.
"""

from __future__ import annotations

from heddle.sim.core.bits import ctz
from heddle.sim.core.memory_dram import Buffer, duration, piece_address
from heddle.sim.core.memory_layout import (
    CHUNK_BYTES,
    DRAM_EXTRA,
    ENTRY_DIRTY,
    ENTRY_READY,
    ENTRY_RESIDENT,
    FAR,
    FIRST_SM,
    GRAIN_BITS,
    HIT,
    KIND_LOAD,
    KIND_STORE,
    L2_COEFFICIENT,
    L2_FREE,
    L2_READ,
    L2_WRITE,
    MERGE,
    MISS,
    MODE,
    MODE_REPRESENTATIVE,
    NEAR,
    OUTSIDE,
    PORT_BASE,
    PORT_COEFFICIENT,
    PORTS,
    RECORD_LATE,
    STORE_LATENCY,
    STREAM_BASE,
    STREAM_BLOCKS,
    STREAM_ENTRIES,
    STREAM_PIECES,
    STREAM_STRIDE,
    STREAM_WORDS,
    TAKEN,
    TICK_GRAIN_BITS,
    UNIT,
)
from heddle.sim.core.memory_represent import (
    find_record,
    read_for_representative,
    represent_l2,
    write_for_representative,
)
from heddle.sim.core.memory_tags import allocate, count_pieces, fetch, service_bytes, touch


def piece_mask(pieces: int, part: int, parts: int) -> int:
    """Return the mask of the pieces that part `part` of `parts` (at least 1) covers; finer parts share a piece."""
    part %= parts
    low = part * pieces // parts
    high = max(low + 1, (part + 1) * pieces // parts)
    mask = 0
    for piece in range(low, high):
        mask |= 1 << piece
    return mask


def first_unit(mem: Buffer, row: int, block: int, part: int, parts: int) -> int:
    """Return the number of the unit in which a part of a block begins; of a block outside its tensor, the SM's own."""
    if block < 0 or block >= mem[row + STREAM_BLOCKS]:
        return 0
    return int(piece_address(mem, row, block, part % parts * mem[row + STREAM_PIECES] // parts) // mem[UNIT])


def latency(mem: Buffer, sm: int, unit: int, nbytes: int) -> int:
    """Return the grains from L2 to the SM: near or far by the unit; several units lie in both partitions (far)."""
    if nbytes > mem[UNIT] or (unit + mem[FIRST_SM] + sm) & 1:
        return int(mem[FAR])
    return int(mem[NEAR])


def through_port(mem: Buffer, now: int, sm: int, way: int, flows: int, ready: int, nbytes: int) -> int:
    """Pass the data through the SM's port and return the cycle of arrival.

    The port's queue is kept in time of issue, but no data reach it sooner than the way from L2 takes (`way`, grains): a
    backlog is counted from there. Data pass as they come: the first can from `flows` on, and when the last chunk is
    `ready`, only that is left.
    """
    length = duration(nbytes, mem[PORT_COEFFICIENT])
    last = duration(min(nbytes, CHUNK_BYTES), mem[PORT_COEFFICIENT])
    server = mem[PORT_BASE] + sm
    free = max(mem[server], now) + length
    mem[server] = free
    return int(max(free + way, max(flows + length, ready + last)) >> GRAIN_BITS)


def send(mem: Buffer, now: int, sm: int, nbytes: int) -> int:
    """Pass a store's data through the SM's port and return when it has sent them, in grains."""
    server = mem[PORT_BASE] + mem[PORTS] + sm
    mem[server] = max(mem[server], now) + duration(nbytes, mem[PORT_COEFFICIENT])
    return int(mem[server])


def serve_l2(mem: Buffer, now: int, arrival: int, nbytes: int) -> int:
    """Charge the L2 server from `now` and return when the request has been served, in grains."""
    length = duration(nbytes, mem[L2_COEFFICIENT])
    free = max(mem[L2_FREE], now) + length
    mem[L2_FREE] = free
    return int(max(free, arrival + length))


def look_up(
    mem: Buffer, now: int, served: int, kind: int, row: int, block: int, mask: int, nbytes: int, extra: int
) -> int:
    """Find the pieces in the tags, fetch the missing ones; return when DRAM data are there, in grains (0: none needed).

    `extra` is added to the time of a miss: the latency of the way back and of DRAM.
    """
    entry = mem[row + STREAM_ENTRIES] + block * mem[row + STREAM_STRIDE]
    resident = mem[entry + ENTRY_RESIDENT]
    touch(mem, entry)
    missing = mask & ~resident
    late, joined = 0, 0
    rest = int(mask & resident)
    while rest != 0:
        ready = mem[entry + ENTRY_READY + ctz(rest)]
        if ready > now:
            joined += 1
            late = max(late, ready)
        rest &= rest - 1
    if missing != 0:
        allocate(mem, now, row, entry, missing)
        arrival = now
        if kind != KIND_STORE:
            arrival = fetch(mem, now, served, row, block, missing) + extra
            late = max(late, arrival)
        rest = int(missing)
        while rest != 0:
            mem[entry + ENTRY_READY + ctz(rest)] = arrival
            rest &= rest - 1
    if kind == KIND_LOAD:
        covered = count_pieces(mask)
        miss_bytes, merge_bytes = nbytes * count_pieces(missing) // covered, nbytes * joined // covered
        mem[MISS] += miss_bytes
        mem[MERGE] += merge_bytes
        mem[HIT] += nbytes - miss_bytes - merge_bytes
    else:
        mem[entry + ENTRY_DIRTY] |= mask
    return int(late)


def locate(
    mem: Buffer,
    now: int,
    arrival: int,
    kind: int,
    stream: int,
    block: int,
    mask: int,
    nbytes: int,
    extra: int,
    item: int,
    step: int,
) -> tuple[int, int]:
    """Charge L2 and DRAM for one request: (end of L2 service, arrival of DRAM data at the SM or 0), in grains."""
    row = mem[STREAM_BASE] + stream * STREAM_WORDS
    service = service_bytes(mem, kind, nbytes)
    if mem[MODE] != MODE_REPRESENTATIVE:
        served = serve_l2(mem, now, arrival, service)
        return served, look_up(mem, now, served, kind, row, block, mask, nbytes, extra)
    record = find_record(mem, stream, item, step)
    if record == 0:
        mem[OUTSIDE] += 1
        return serve_l2(mem, now, arrival, service), 0
    served = represent_l2(mem, now, arrival, record, service, kind == KIND_LOAD)
    waits = (mem[record + RECORD_LATE] & mask) != 0
    if kind != KIND_LOAD:
        write_for_representative(mem, now, served, record, service, row, block, mask if waits else 0)
        return served, 0
    mem[MISS if waits else HIT] += nbytes
    end = read_for_representative(mem, now, served, record, service, row, block, mask & mem[record + RECORD_LATE])
    return served, end + extra if waits else 0


def memory_access(
    mem: Buffer,
    t: int,
    q_ticks: int,
    sm: int,
    kind: int,
    stream: int,
    block: int,
    part: int,
    parts: int,
    nbytes: int,
    extra_cycles: int,
    item_ordinal: int,
    step: int,
) -> int:
    """Serve a request that issues in cycle `t` and reaches L2 at `q_ticks` (1/256 cycle); return its cycle R.

    `sm`: index of the simulated SM. `kind`: KIND_LOAD (R: data in the SM), KIND_STORE or KIND_REDUCE (R: visible in
    L2). `part` of `parts` of `block` of stream `stream` (index in `program.streams`); `extra_cycles` is added to the
    latency. After a store mem[TAKEN] says when memory has taken its data (grains; 0: at once): until then the SM holds
    them. `item_ordinal` is the place of the work item in the SM group's list (`LaunchPlan`) and `step` the stream's
    loop counter plus the access's offset: they name the record in representative mode and are ignored in the others.
    A block outside the tensor moves no bytes and reads as zero after the latency of a hit.
    """
    now, arrival, extra = t << GRAIN_BITS, q_ticks << TICK_GRAIN_BITS, extra_cycles << GRAIN_BITS
    row = mem[STREAM_BASE] + stream * STREAM_WORDS
    way = latency(mem, sm, first_unit(mem, row, block, part, parts), nbytes) + extra
    mem[TAKEN] = 0
    if block < 0 or block >= mem[row + STREAM_BLOCKS]:
        mem[OUTSIDE] += 1
        return int((arrival + way) >> GRAIN_BITS)
    mask = piece_mask(mem[row + STREAM_PIECES], part, parts)
    served, late = locate(
        mem, now, arrival, kind, stream, block, mask, nbytes, way + mem[DRAM_EXTRA], item_ordinal, step
    )
    if kind != KIND_LOAD:
        mem[L2_WRITE] += nbytes
        mem[TAKEN] = max(mem[TAKEN], send(mem, now, sm, nbytes))
        return int((max(served, mem[TAKEN]) >> GRAIN_BITS) + mem[STORE_LATENCY])
    mem[L2_READ] += nbytes
    return through_port(mem, now, sm, way, arrival + way, max(served + way, late), nbytes)


def memory_access_multicast(
    mem: Buffer,
    t: int,
    q_ticks: int,
    first_sm: int,
    count: int,
    stream: int,
    block: int,
    part: int,
    parts: int,
    nbytes: int,
    extra_cycles: int,
    item_ordinal: int,
    step: int,
    out: Buffer,
    out_offset: int,
) -> None:
    """Load once from L2 for the `count` SMs from `first_sm` on; out[out_offset + i] := R in SM first_sm + i.

    Each SM's port passes `nbytes`. `out` may be any int64 array, the engine's own buffer included. Other arguments as
    those of `memory_access`.
    """
    now, arrival, extra = t << GRAIN_BITS, q_ticks << TICK_GRAIN_BITS, extra_cycles << GRAIN_BITS
    row = mem[STREAM_BASE] + stream * STREAM_WORDS
    unit = first_unit(mem, row, block, part, parts)
    way = latency(mem, first_sm, unit, nbytes) + extra
    outside = block < 0 or block >= mem[row + STREAM_BLOCKS]
    served, late = arrival, 0
    if outside:
        mem[OUTSIDE] += 1
    else:
        mask = piece_mask(mem[row + STREAM_PIECES], part, parts)
        served, late = locate(
            mem, now, arrival, KIND_LOAD, stream, block, mask, nbytes, way + mem[DRAM_EXTRA], item_ordinal, step
        )
        mem[L2_READ] += nbytes
    for i in range(count):
        way = latency(mem, first_sm + i, unit, nbytes) + extra
        if outside:
            out[out_offset + i] = (served + way) >> GRAIN_BITS
        else:
            ready = max(served + way, late)
            out[out_offset + i] = through_port(mem, now, first_sm + i, way, arrival + way, ready, nbytes)
