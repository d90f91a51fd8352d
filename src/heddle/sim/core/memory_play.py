"""The tile pass: play every cluster's block accesses in lockstep through the L2 tags, without time.

A step of the lockstep lets every role of every cluster run to its next loop branch. What a program accesses is given as
a *skeleton* (`heddle.sim.tilepass_skeleton`): access, loop, skip and end rows only. Ten million look-ups take about a
second. Neighbours: `memory_tags` (the tags), `heddle.sim.tilepass` (what is made of the record).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.sim.core.jit import compiled, ctz
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

# state of a role in a cluster: row of the skeleton (-1: ended), then the loop counters
STATE_WORDS = 5

# record of an access of the representative
SEEN_ORDINAL, SEEN_STREAM, SEEN_STEP, SEEN_LATE, SEEN_BYTES, SEEN_LOCKSTEP, SEEN_PARITY = 0, 1, 2, 3, 4, 5, 6
SEEN_WORDS = 7
NOT_RECORDED = -1


@compiled
def play_access(mem: Array, row: int, kind: int, block: int, mask: int, nbytes: int) -> int:
    """Look up pieces of a block, fetch and evict as needed, and return the mask of those that come from DRAM.

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
        late = 0
    return int(late)


@compiled
def next_row(code: Array, row: int, state: Array, at: int, items: Array, item: int) -> int:
    """Return the row after a loop, skip or end row, stepping the loop counter that it names."""
    if code[row, OP] == OP_SKIP:
        return int(code[row, TARGET] if items[item, code[row, LOOP_LEVEL]] == 0 else row + 1)
    counter = at + 1 + code[row, LOOP_LEVEL]
    count = code[row, COUNT_VALUE] + code[row, COUNT_OFFSET]
    if code[row, COUNT_ATTRIBUTE] >= 0:
        count = items[item, code[row, COUNT_ATTRIBUTE]] + code[row, COUNT_OFFSET]
    state[counter] += 1
    if state[counter] < count:
        return int(code[row, TARGET])
    state[counter] = 0
    return row + 1


@compiled
def run_to_branch(
    mem: Array,
    code: Array,
    state: Array,
    at: int,
    items: Array,
    item: int,
    ordinal: int,
    lockstep: int,
    seen: Array,
    seen_count: int,
) -> int:
    """Run one role of one cluster through its next loop branch; append the representative's accesses to `seen`."""
    row = state[at]
    while code[row, OP] != OP_END:
        if code[row, OP] != OP_ACCESS:
            looped = code[row, OP] == OP_LOOP
            row = next_row(code, row, state, at, items, item)
            if looped:
                state[at] = row
                return seen_count
            continue
        step = state[at + 1 + code[row, LEVEL]] + code[row, OFFSET]
        block = items[item, code[row, BASE]] + code[row, DELTA] + step * code[row, BLOCK_STEP]
        stream_row = mem[STREAM_BASE] + code[row, STREAM] * STREAM_WORDS
        late = play_access(mem, stream_row, code[row, KIND], block, code[row, MASK], code[row, BYTES])
        if ordinal >= 0:
            seen[seen_count, SEEN_ORDINAL] = ordinal
            seen[seen_count, SEEN_STREAM] = code[row, STREAM]
            seen[seen_count, SEEN_STEP] = step
            seen[seen_count, SEEN_LATE] = late
            seen[seen_count, SEEN_BYTES] = service_bytes(mem, code[row, KIND], code[row, BYTES])
            seen[seen_count, SEEN_LOCKSTEP] = lockstep
            seen[seen_count, SEEN_PARITY] = block & 1
            seen_count += 1
        row += 1
    state[at] = -1
    return seen_count


@compiled
def play(
    mem: Array,
    code: Array,
    entries: Array,
    items: Array,
    lists: Array,
    lengths: Array,
    ordinals: Array,
    ahead: Array,
    totals: Array,
    seen: Array,
) -> int:
    """Play all clusters' items in lockstep and return how many steps that took.

    entries [wave > 0, role]: first skeleton row. lists [cluster, wave]: item rows, lengths [cluster]. ordinals
    [cluster, wave]: the representative's item ordinals, NOT_RECORDED elsewhere. ahead [cluster]: 1 up to the
    representative's rank. totals [step, 4]: bytes at L2 and at DRAM, of all clusters and of those ahead (if too short,
    the rest is not written). seen [accesses of the representative, SEEN_WORDS].
    """
    clusters, waves = lists.shape
    roles = entries.shape[1]
    state = np.zeros(clusters * roles * STATE_WORDS, dtype=np.int64)
    lockstep, seen_count = 0, 0
    for wave in range(waves):
        for cluster in range(clusters):
            for role in range(roles):
                at = (cluster * roles + role) * STATE_WORDS
                state[at : at + STATE_WORDS] = 0
                state[at] = entries[min(wave, 1), role] if wave < lengths[cluster] else -1
        active = True
        while active:
            active = False
            mem[STAMP] += 1
            for cluster in range(clusters):
                before_l2 = mem[L2_READ] + service_bytes(mem, KIND_STORE, mem[L2_WRITE])
                before_dram = mem[DRAM_READ] + mem[DRAM_WRITE]
                for role in range(roles):
                    at = (cluster * roles + role) * STATE_WORDS
                    if state[at] >= 0:
                        seen_count = run_to_branch(
                            mem,
                            code,
                            state,
                            at,
                            items,
                            lists[cluster, wave],
                            ordinals[cluster, wave],
                            lockstep,
                            seen,
                            seen_count,
                        )
                        active = active or state[at] >= 0
                if lockstep < totals.shape[0]:
                    l2 = mem[L2_READ] + service_bytes(mem, KIND_STORE, mem[L2_WRITE]) - before_l2
                    dram = mem[DRAM_READ] + mem[DRAM_WRITE] - before_dram
                    totals[lockstep, 0] += l2
                    totals[lockstep, 1] += dram
                    totals[lockstep, 2] += l2 * ahead[cluster]
                    totals[lockstep, 3] += dram * ahead[cluster]
            lockstep += 1
    return lockstep


@compiled
def measure(code: Array, entries: Array, items: Array, item: int, wave: int) -> tuple[int, int]:
    """Return (steps of the lockstep, accesses) of one work item."""
    steps, accesses = 0, 0
    state = np.zeros(STATE_WORDS, dtype=np.int64)
    for role in range(entries.shape[1]):
        state[:] = 0
        row = entries[min(wave, 1), role]
        branches = 1
        while code[row, OP] != OP_END:
            if code[row, OP] == OP_ACCESS:
                accesses += 1
                row += 1
                continue
            branches += 1 if code[row, OP] == OP_LOOP else 0
            row = next_row(code, row, state, 0, items, item)
        steps = max(steps, branches)
    return steps, accesses


@compiled
def settle(mem: Array) -> None:
    """End a play: every resident piece is there, and time can start."""
    mem[STAMP] = 0
    entry = mem[HEAD]
    while entry != 0:
        for piece in range(mem[mem[entry + ENTRY_STREAM] + STREAM_PIECES]):
            mem[entry + ENTRY_READY + piece] = 0
        entry = mem[entry + ENTRY_OLDER]
