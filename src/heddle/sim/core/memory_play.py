"""The tile pass: play every cluster's block accesses in lockstep through the L2 tags, without time.

A step of the lockstep lets every role of every cluster run to its next loop branch. What a program accesses is given as
a *skeleton* (`heddle.sim.tilepass_skeleton`): access, loop, skip and end rows only. Tables are flat arrays, row by row;
a work item is given as the offset of its row. Ten million look-ups take about a second. Neighbours: `memory_tags` (the
tags), `heddle.sim.tilepass` (what is made of the record).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.sim.core.bits import ctz
from heddle.sim.core.memory_dram import piece_address
from heddle.sim.core.memory_layout import (
    DRAM_READ,
    DRAM_WRITE,
    ENTRY_DIRTY,
    ENTRY_OLDER,
    ENTRY_READY,
    ENTRY_RESIDENT,
    ENTRY_STREAM,
    HEAD,
    KIND_LOAD,
    KIND_STORE,
    L2_READ,
    L2_WRITE,
    OUTSIDE,
    STAMP,
    STREAM_BASE,
    STREAM_BLOCKS,
    STREAM_ENTRIES,
    STREAM_PIECES,
    STREAM_STRIDE,
    STREAM_WORDS,
    UNIT,
)
from heddle.sim.core.memory_tags import allocate, fetch, service_bytes, touch

Array = NDArray[np.int64]

# skeleton rows
OP = 0
OP_END, OP_ACCESS, OP_LOOP, OP_SKIP = 0, 1, 2, 3
# access
STREAM, KIND, BASE, DELTA, LEVEL, OFFSET, BLOCK_STEP, MASK, BYTES = 1, 2, 3, 4, 5, 6, 7, 8, 9
# loop and skip
TARGET, LOOP_LEVEL, COUNT_VALUE, COUNT_ATTRIBUTE, COUNT_OFFSET = 1, 2, 3, 4, 5
ROW_WORDS = 10

# state of a role in a cluster: offset of its row of the skeleton, then the loop counters
STATE_WORDS = 5
ENDED = -1

# record of an access of the representative
SEEN_ORDINAL, SEEN_STREAM, SEEN_STEP, SEEN_LATE, SEEN_BYTES, SEEN_LOCKSTEP, SEEN_SIDE = 0, 1, 2, 3, 4, 5, 6
SEEN_WORDS = 7

# row of totals of a step: bytes moved by the chip
TOTAL_L2, TOTAL_READ, TOTAL_WRITTEN = 0, 1, 2
TOTAL_WORDS = 3
NOT_RECORDED = -1


def play_access(mem: Array, row: int, kind: int, block: int, mask: int, nbytes: int) -> int:
    """Look up pieces of a block, fetch and evict as needed, and return the mask of those that come from DRAM.

    For a store or reduction, return the whole mask if it drove dirty data out, else 0.
    Pieces that were fetched in the same step (their ready word holds the step's stamp) count as coming from DRAM:
    whoever asks for them meanwhile waits for the same transfer.
    """
    if block < 0 or block >= mem[row + STREAM_BLOCKS]:
        mem[OUTSIDE] += 1
        return 0
    mem[L2_READ if kind == KIND_LOAD else L2_WRITE] += nbytes
    entry = mem[row + STREAM_ENTRIES] + block * mem[row + STREAM_STRIDE]
    found = mask & mem[entry + ENTRY_RESIDENT]
    missing = mask ^ found
    touch(mem, entry)
    stamp = mem[STAMP]
    late = missing
    written = mem[DRAM_WRITE]
    if found != 0:
        rest = int(found)
        while rest != 0:
            if mem[entry + ENTRY_READY + ctz(rest)] == stamp:
                late |= rest & -rest
            rest &= rest - 1
    if missing != 0:
        allocate(mem, 0, row, entry, missing)
        if kind != KIND_STORE:
            fetch(mem, 0, 0, row, block, missing)
        rest = int(missing)
        while rest != 0:
            mem[entry + ENTRY_READY + ctz(rest)] = stamp if kind == KIND_LOAD else 0
            rest &= rest - 1
    if kind != KIND_LOAD:
        mem[entry + ENTRY_DIRTY] |= mask
        late = mask if mem[DRAM_WRITE] != written else 0
    return int(late)


def side_of(mem: Array, row: int, block: int) -> int:
    """Return a block's place among two units of addresses: equal places are equally near, part by part."""
    return int(piece_address(mem, row, block, 0) % (2 * mem[UNIT]))


def next_row(code: Array, row: int, state: Array, at: int, items: Array, item: int) -> int:
    """Return the offset of the row after a loop, skip or end row, stepping the loop counter that it names."""
    if code[row + OP] == OP_SKIP:
        return int(code[row + TARGET] if items[item + code[row + LOOP_LEVEL]] == 0 else row + ROW_WORDS)
    counter = at + 1 + code[row + LOOP_LEVEL]
    count = code[row + COUNT_VALUE] + code[row + COUNT_OFFSET]
    if code[row + COUNT_ATTRIBUTE] >= 0:
        count = items[item + code[row + COUNT_ATTRIBUTE]] + code[row + COUNT_OFFSET]
    state[counter] += 1
    if state[counter] < count:
        return int(code[row + TARGET])
    state[counter] = 0
    return int(row + ROW_WORDS)


def note(mem: Array, code: Array, row: int, ordinal: int, step: int, late: int, side: int, seen: Array) -> None:
    """Append an access of the representative to `seen`; its first word counts the accesses."""
    at = 1 + seen[0] * SEEN_WORDS
    seen[at + SEEN_ORDINAL] = ordinal
    seen[at + SEEN_STREAM] = code[row + STREAM]
    seen[at + SEEN_STEP] = step
    seen[at + SEEN_LATE] = late
    seen[at + SEEN_BYTES] = service_bytes(mem, code[row + KIND], code[row + BYTES])
    seen[at + SEEN_LOCKSTEP] = mem[STAMP] - 1
    seen[at + SEEN_SIDE] = side
    seen[0] += 1


def run_to_branch(
    mem: Array, code: Array, state: Array, at: int, items: Array, item: int, ordinal: int, seen: Array
) -> None:
    """Run one role of one cluster through its next loop branch; append the representative's accesses to `seen`."""
    row = state[at]
    while code[row + OP] != OP_END:
        if code[row + OP] != OP_ACCESS:
            looped = code[row + OP] == OP_LOOP
            row = next_row(code, row, state, at, items, item)
            if looped:
                state[at] = row
                return
            continue
        step = state[at + 1 + code[row + LEVEL]] + code[row + OFFSET]
        block = items[item + code[row + BASE]] + code[row + DELTA] + step * code[row + BLOCK_STEP]
        stream_row = mem[STREAM_BASE] + code[row + STREAM] * STREAM_WORDS
        late = play_access(mem, stream_row, code[row + KIND], block, code[row + MASK], code[row + BYTES])
        if ordinal >= 0:
            note(mem, code, row, ordinal, step, late, side_of(mem, stream_row, block), seen)
        row += ROW_WORDS
    state[at] = ENDED


def begin_item(entries: Array, state: Array, first: int, roles: int, wave: int) -> None:
    """Put every role of a cluster (states from `first` on) at its first row of its item number `wave`."""
    for role in range(roles):
        at = first + role * STATE_WORDS
        for word in range(STATE_WORDS):
            state[at + word] = 0
        state[at] = entries[min(wave, 1) * roles + role]


def l2_work(mem: Array) -> int:
    """Return the bytes that L2 has served so far, as it serves them."""
    return int(mem[L2_READ] + service_bytes(mem, KIND_STORE, mem[L2_WRITE]))


def step_cluster(
    mem: Array,
    code: Array,
    items: Array,
    state: Array,
    first: int,
    roles: int,
    item: int,
    ordinal: int,
    total: int,
    totals: Array,
    seen: Array,
) -> int:
    """Run every role of one cluster (states from `first` on) to its next branch; return whether one goes on.

    Adds what they moved to the row at `total` of `totals`, unless that is negative.
    """
    before_l2, before_read, before_written = l2_work(mem), mem[DRAM_READ], mem[DRAM_WRITE]
    active = 0
    for role in range(roles):
        at = first + role * STATE_WORDS
        if state[at] >= 0:
            run_to_branch(mem, code, state, at, items, item, ordinal, seen)
            if state[at] >= 0:
                active = 1
    if total >= 0:
        totals[total + TOTAL_L2] += l2_work(mem) - before_l2
        totals[total + TOTAL_READ] += mem[DRAM_READ] - before_read
        totals[total + TOTAL_WRITTEN] += mem[DRAM_WRITE] - before_written
    return active


def play(
    mem: Array,
    code: Array,
    entries: Array,
    items: Array,
    lists: Array,
    lengths: Array,
    ordinals: Array,
    totals: Array,
    seen: Array,
    state: Array,
    wave_of: Array,
    clusters: int,
    waves: int,
    roles: int,
    steps: int,
) -> None:
    """Play all clusters' items in lockstep, from STAMP 0 on; a cluster begins its next item a step after the last.

    code: skeleton rows, targets as offsets. entries [wave > 0, role]: first skeleton row, as an offset. items: work
    items. lists [cluster, wave]: offsets in items, lengths [cluster]. ordinals [cluster, wave]: the representative's
    item ordinals, NOT_RECORDED elsewhere. totals
    [step, TOTAL_WORDS] for the first `steps` steps. seen: a count, then [access of the representative, SEEN_WORDS].
    Room: state [cluster, role, STATE_WORDS], wave_of [cluster].
    """
    for cluster in range(clusters):
        wave_of[cluster] = 0
        begin_item(entries, state, cluster * roles * STATE_WORDS, roles, 0)
    active = 1
    while active != 0:
        active = 0
        total = mem[STAMP] * TOTAL_WORDS if mem[STAMP] < steps else -1
        mem[STAMP] += 1
        for cluster in range(clusters):
            wave = wave_of[cluster]
            if wave < lengths[cluster]:
                active = 1
                first, place = cluster * roles * STATE_WORDS, cluster * waves + wave
                goes_on = step_cluster(
                    mem,
                    code,
                    items,
                    state,
                    first,
                    roles,
                    lists[place],
                    ordinals[place],
                    total,
                    totals,
                    seen,
                )
                if goes_on == 0:
                    wave_of[cluster] = wave + 1
                    begin_item(entries, state, first, roles, wave + 1)


def measure(
    code: Array, entries: Array, items: Array, rows: Array, sizes: Array, state: Array, count: int, roles: int
) -> None:
    """Write (steps of the lockstep, accesses) of `count` work items to sizes [item, 2].

    rows [item]: its offset in `items`. entries [role]: first skeleton row of each role, as an offset.
    """
    for number in range(count):
        sizes[2 * number] = 0
        sizes[2 * number + 1] = 0
        for role in range(roles):
            for word in range(STATE_WORDS):
                state[word] = 0
            row = entries[role]
            branches = 1
            while code[row + OP] != OP_END:
                if code[row + OP] == OP_ACCESS:
                    sizes[2 * number + 1] += 1
                    row += ROW_WORDS
                    continue
                branches += 1 if code[row + OP] == OP_LOOP else 0
                row = next_row(code, row, state, 0, items, rows[number])
            sizes[2 * number] = max(sizes[2 * number], branches)


def settle(mem: Array) -> None:
    """End a play: every resident piece is there, and time can start."""
    mem[STAMP] = 0
    entry = mem[HEAD]
    while entry != 0:
        for piece in range(mem[mem[entry + ENTRY_STREAM] + STREAM_PIECES]):
            mem[entry + ENTRY_READY + piece] = 0
        entry = mem[entry + ENTRY_OLDER]
