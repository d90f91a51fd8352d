"""The tile-level pass: what the whole chip does to L2 and DRAM, as seen from the representative's accesses.

All clusters are played in lockstep through the L2 tags (`core.memory_play`). For each access position of the
representative (item ordinal, stream, step) the result says which pieces come from DRAM and how many bytes the chip
moves for each of its own bytes; `core.memory_represent` turns that into time. Rule: docs/reference/engine.md, section
6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.ir.warp import WarpProgram
from heddle.sim.core import memory_layout as layout
from heddle.sim.core import memory_play as play
from heddle.sim.core_loader import COMPILED, Core, load_core
from heddle.sim.launch import LaunchPlan
from heddle.sim.memory_spaces import StreamSpace
from heddle.sim.tilepass_skeleton import Skeleton, build_skeleton

Array = NDArray[np.int64]

UNBOUNDED = 1 << 28  # bytes: longer than any queue, and its duration still fits 63 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRecord:
    """What the pass saw: `seen` [representative's accesses, SEEN_WORDS] and `totals` [lockstep step, TOTAL_WORDS].

    The totals are bytes at L2 (as it serves them), read from DRAM and written to it, of the whole chip.
    """

    stores: tuple[bool, ...]  # for each stream: does it store?
    ordinals: int  # places in the representative's item list
    drains: bool  # schedule `launch`: an SM starts each item with empty stages
    seen: Array
    totals: Array


def _lists(plan: LaunchPlan) -> tuple[Array, Array]:
    """Return item rows [cluster, wave] and the number of items of each cluster."""
    lengths = np.array([len(rows) for rows in plan.items], dtype=np.int64)
    lists = np.zeros((len(plan.items), int(lengths.max(initial=0))), dtype=np.int64)
    for cluster, rows in enumerate(plan.items):
        lists[cluster, : len(rows)] = rows
    return lists, lengths


def _ordinals(plan: LaunchPlan, shape: tuple[int, ...]) -> Array:
    """Return the item ordinal of each (cluster, wave) of the representative group, NOT_RECORDED elsewhere."""
    ordinals = np.full(shape, play.NOT_RECORDED, dtype=np.int64)
    group = plan.representative
    place = {int(row): number for number, row in enumerate(plan.group_items(group)) if row >= 0}
    for cluster in plan.group_clusters(group):
        for wave, row in enumerate(plan.items[cluster]):
            ordinals[cluster, wave] = place[int(row)]
    return ordinals


def _flat(skeleton: Skeleton) -> tuple[Array, Array]:
    """Return the skeleton's rows with targets as offsets, and its entries as offsets."""
    code = skeleton.code.copy()
    branches = np.isin(code[:, play.OP], (play.OP_LOOP, play.OP_SKIP))
    code[branches, play.TARGET] *= play.ROW_WORDS
    return code, skeleton.entries * play.ROW_WORDS


def _room(core: Core, code: Array, entries: Array, items: Array, lists: Array, ordinals: Array) -> tuple[int, int]:
    """Return how many lockstep steps the play takes and how many accesses the representative makes.

    `lists` [cluster, wave] has offsets in `items`, -1 where a cluster has none; `ordinals` marks the representative's.
    """
    steps, accesses = np.zeros(len(lists), dtype=np.int64), 0
    state = np.zeros(play.STATE_WORDS, dtype=np.int64)
    for wave in range(lists.shape[1]):
        rows, where = np.unique(lists[lists[:, wave] >= 0, wave], return_inverse=True)
        sizes = np.zeros((len(rows), 2), dtype=np.int64)
        first = np.ascontiguousarray(entries[min(wave, 1)])
        core.measure(code, first, items, rows, sizes, state, len(rows), len(first))
        steps[lists[:, wave] >= 0] += sizes[where, 0]
        own = np.unique(where[ordinals[lists[:, wave] >= 0, wave] >= 0])
        accesses += int(sizes[own, 1].sum())
    return int(steps.max(initial=0)), accesses


def _play(buffer: Array, program: WarpProgram, plan: LaunchPlan, spaces: list[StreamSpace], record: bool) -> ChipRecord:
    """Play the whole kernel on the tags of `buffer`."""
    core = load_core(COMPILED)  # always: a pass in plain Python would take minutes
    code, entries = _flat(build_skeleton(program, [space.pieces for space in spaces]))
    items = np.ascontiguousarray(program.work.items, dtype=np.int64)
    lists, lengths = _lists(plan)
    offsets = lists * items.shape[1]
    ordinals = np.full(lists.shape, play.NOT_RECORDED, dtype=np.int64)
    steps, accesses = 0, 0
    if record:
        ordinals = _ordinals(plan, lists.shape)
        running = np.arange(lists.shape[1]) < lengths[:, None]
        steps, accesses = _room(core, code, entries, items, np.where(running, offsets, -1), ordinals)
    totals = np.zeros((steps, play.TOTAL_WORDS), dtype=np.int64)
    seen = np.zeros(1 + accesses * play.SEEN_WORDS, dtype=np.int64)  # the first word counts
    clusters, waves, roles = *lists.shape, entries.shape[1]
    state = np.zeros(clusters * roles * play.STATE_WORDS, dtype=np.int64)
    tables = (code, entries, items, offsets, lengths, ordinals)
    wave_of = np.zeros(clusters, dtype=np.int64)
    core.play(buffer, *tables, totals, seen, state, wave_of, clusters, waves, roles, steps)
    return ChipRecord(
        stores=tuple(stream.direction != "load" for stream in program.streams),
        ordinals=len(plan.group_items(plan.representative)),
        drains=plan.schedule == "launch",
        seen=seen[1:].reshape(accesses, play.SEEN_WORDS),
        totals=totals,
    )


def warm_up(buffer: Array, program: WarpProgram, plan: LaunchPlan, spaces: list[StreamSpace]) -> None:
    """Leave in the tags of `buffer` what one run of the kernel leaves, with all counters at zero."""
    _play(buffer, program, plan, spaces, record=False)
    load_core(COMPILED).settle(buffer)
    buffer[layout.COUNTERS : layout.COUNTERS_END] = 0


def play_chip(buffer: Array, program: WarpProgram, plan: LaunchPlan, spaces: list[StreamSpace]) -> ChipRecord:
    """Play the kernel from the state in `buffer`, record the representative's accesses, leave counters in `buffer`."""
    return _play(buffer, program, plan, spaces, record=True)


def charges(record: ChipRecord) -> tuple[Array, Array]:
    """Return for each seen access the totals of its step for each byte of the representative, in 1/65536; the reach.

    The reach is the (L2, DRAM) work by which other SMs can be ahead. A persistent kernel never drains, and they stay
    within one step: of its loads for a load, of its stores for a store, as a tile's stores are issued long after the
    loads that the pass plays in the same step. Under `launch` each SM begins an item with a burst of all its stages,
    once the SM before it has had its own: there the reach at L2 has no bound.

    A step in which the representative accesses nothing is charged with its next access (the last one at the end), so
    that the charges of all accesses add up to the totals.
    """
    step, work = record.seen[:, play.SEEN_LOCKSTEP], record.totals
    own = np.bincount(step, weights=record.seen[:, play.SEEN_BYTES], minlength=len(record.totals)).astype(np.int64)
    active = np.flatnonzero(own)
    if not len(active):
        return np.zeros((len(step), play.TOTAL_WORDS), dtype=np.int64), np.zeros((len(step), 2), dtype=np.int64)
    sums = np.cumsum(work, axis=0)[active]
    sums[-1] = work.sum(axis=0)
    chip = np.zeros((len(own), play.TOTAL_WORDS), dtype=np.int64)
    chip[active] = np.diff(sums, axis=0, prepend=0)
    ratio = (chip << 16) // np.maximum(own, 1)[:, None]
    l2, dram = chip[step, play.TOTAL_L2], chip[step, play.TOTAL_READ :].sum(axis=1)
    dram = dram * np.maximum(l2 - own[step], 0) // np.maximum(l2, 1)  # without the representative's own
    kind = _of_a_kind(record)[:, None]
    reach = np.stack([l2, dram], axis=1) * kind // np.maximum(own[step], 1)[:, None]
    if record.drains:
        reach[:, 0] = UNBOUNDED
    return ratio[step], reach


def _of_a_kind(record: ChipRecord) -> Array:
    """Return for each seen access the bytes of the representative in its step that go the same way, in or out."""
    stores = np.array(record.stores, dtype=np.int64)[record.seen[:, play.SEEN_STREAM]]
    key = 2 * record.seen[:, play.SEEN_LOCKSTEP] + stores
    same: Array = np.bincount(key, weights=record.seen[:, play.SEEN_BYTES])[key].astype(np.int64)
    return same


def with_records(buffer: Array, record: ChipRecord) -> Array:
    """Return `buffer` with the record table and the records appended, as `core.memory_represent` reads them."""
    table_at = len(buffer)
    rows = record.ordinals * len(record.stores)
    table = np.zeros((rows, layout.TABLE_WORDS), dtype=np.int64)
    seen = record.seen
    ratio, reach = charges(record)
    row = seen[:, play.SEEN_ORDINAL] * len(record.stores) + seen[:, play.SEEN_STREAM]
    step = seen[:, play.SEEN_STEP]
    first = np.full(rows, np.iinfo(np.int64).max)
    last = np.full(rows, np.iinfo(np.int64).min)
    np.minimum.at(first, row, step)
    np.maximum.at(last, row, step)
    used = last >= first
    table[used, layout.TABLE_FIRST_STEP] = first[used]
    table[used, layout.TABLE_STEPS] = last[used] - first[used] + 1
    ends = np.cumsum(table[:, layout.TABLE_STEPS])
    start = ends - table[:, layout.TABLE_STEPS]
    table[:, layout.TABLE_OFFSET] = table_at + rows * layout.TABLE_WORDS + start * layout.RECORD_WORDS
    place = start[row] + step - first[row]
    records = _records(seen, ratio, reach, place, int(ends[-1]) if rows else 0)
    whole = np.concatenate([buffer, table.reshape(-1), records.reshape(-1)])
    whole[layout.RECORD_TABLE] = table_at
    whole[layout.RECORD_ITEMS] = record.ordinals
    return whole


def _records(seen: Array, ratio: Array, reach: Array, place: Array, count: int) -> Array:
    """Return the records [position, RECORD_WORDS]; accesses that share a position are averaged by bytes.

    A position that is accessed again later (a block read in each turn of an outer loop) is late if most accesses are.
    """
    records = np.zeros((count, layout.RECORD_WORDS), dtype=np.int64)
    nbytes = seen[:, play.SEEN_BYTES]
    own = np.bincount(place, weights=nbytes, minlength=count)
    late = np.bincount(place, weights=nbytes * (seen[:, play.SEEN_LATE] != 0), minlength=count)
    np.bitwise_or.at(records[:, layout.RECORD_LATE], place, seen[:, play.SEEN_LATE])
    records[2 * late < own, layout.RECORD_LATE] = 0
    words = (layout.RECORD_L2, layout.RECORD_READ, layout.RECORD_WRITE)
    for column, word in enumerate(words):
        share = np.bincount(place, weights=ratio[:, column].astype(np.float64) * nbytes, minlength=count)
        records[:, word] = np.rint(share / np.maximum(own, 1)).astype(np.int64)
    records[place, layout.RECORD_L2_REACH] = reach[:, 0]
    records[place, layout.RECORD_DRAM_REACH] = reach[:, 1]
    records[place, layout.RECORD_SIDE] = seen[:, play.SEEN_SIDE]
    return records
