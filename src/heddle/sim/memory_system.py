"""Set up the memory system of a simulation and read its counters.

`build_memory` lays out the flat buffer that `heddle.sim.core.memory` works on: rates and latencies of the machine,
block spaces of the program's streams, the initial state of L2, and in representative mode the records of the tile pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError, unknown_name
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim import tilepass
from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory_dram import first_fill
from heddle.sim.core.memory_represent import next_batch
from heddle.sim.launch import LaunchPlan
from heddle.sim.memory_spaces import StreamSpace, stream_spaces

Mode = Literal["chip", "representative", "sm"]
L2State = Literal["warm", "cold", "flushed"]
MODES = {"chip": layout.MODE_CHIP, "sm": layout.MODE_SM, "representative": layout.MODE_REPRESENTATIVE}
L2_STATES = ("warm", "cold", "flushed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes moved. L2 bytes count a multicast once; hit, miss and merge split the loaded bytes."""

    l2_read_bytes: int
    l2_write_bytes: int
    dram_read_bytes: int
    dram_write_bytes: int
    hit_bytes: int
    miss_bytes: int
    merge_bytes: int
    outside_accesses: int


def read_traffic(buffer: NDArray[np.int64]) -> Traffic:
    """Return the counters of a memory buffer."""
    return Traffic(
        l2_read_bytes=int(buffer[layout.L2_READ]),
        l2_write_bytes=int(buffer[layout.L2_WRITE]),
        dram_read_bytes=int(buffer[layout.DRAM_READ]),
        dram_write_bytes=int(buffer[layout.DRAM_WRITE]),
        hit_bytes=int(buffer[layout.HIT]),
        miss_bytes=int(buffer[layout.MISS]),
        merge_bytes=int(buffer[layout.MERGE]),
        outside_accesses=int(buffer[layout.OUTSIDE]),
    )


@dataclass(slots=True, kw_only=True)
class MemorySystem:
    """The memory of one simulation: pass `buffer` to the functions of `heddle.sim.core.memory`."""

    buffer: NDArray[np.int64]
    mode: Mode
    chip: Traffic | None  # representative mode: the whole chip's traffic, from the tile pass

    def traffic(self) -> Traffic:
        """Return the traffic so far; in representative mode that of the whole chip for the whole kernel."""
        return self.chip if self.chip is not None else read_traffic(self.buffer)


def coefficient(bytes_per_cycle: float) -> int:
    """Return the fixed-point coefficient of a rate (`memory_layout`). Raises UserError if the rate is not positive."""
    if not bytes_per_cycle > 0:
        raise UserError(f"a memory rate of {bytes_per_cycle} bytes a cycle; it must be above 0")
    return round((1 << layout.COEFFICIENT_BITS) / bytes_per_cycle)


def _header(machine: Machine, mode: Mode, clock_mhz: float, groups: int, first_sm: int) -> NDArray[np.int64]:
    """Return the header with rates and latencies; `sm` mode gets the share 1/groups of L2 and DRAM."""
    share = groups if mode == "sm" else 1
    channels = max(1, machine.dram_channels // share)
    dram = machine.dram_bytes_per_cycle(clock_mhz) / share
    far = machine.l2_far_latency_cycles if machine.l2_partitions > 1 else machine.l2_near_latency_cycles
    grains = 1 << layout.GRAIN_BITS
    head = np.zeros(layout.HEADER_WORDS, dtype=np.int64)
    head[layout.MODE] = MODES[mode]
    head[layout.L2_COEFFICIENT] = coefficient(machine.l2_bytes_per_cycle_per_sm * machine.sms / share)
    head[layout.L2_WRITE_COST] = round(machine.l2_write_cost * 65536)
    head[layout.DRAM_COEFFICIENT] = coefficient(dram)
    head[layout.CHANNELS] = channels
    head[layout.CHANNEL_COEFFICIENT] = coefficient(dram / channels)
    head[layout.PORT_COEFFICIENT] = coefficient(machine.l2_port_bytes_per_cycle)
    head[layout.NEAR] = (machine.l2_near_latency_cycles - 1) * grains
    head[layout.FAR] = (far - 1) * grains
    head[layout.DRAM_EXTRA] = round(machine.dram_extra_latency_ns * clock_mhz / 1000 * grains)
    head[layout.STORE_LATENCY] = machine.store_latency_cycles
    head[layout.CAPACITY] = machine.l2_bytes
    head[layout.FLUSH_DIRTY] = round(machine.l2_flush_dirty_fraction * 65536)
    head[layout.FIRST_SM] = first_sm
    head[layout.UNIT] = machine.dram_interleave_bytes
    head[layout.BATCH] = machine.dram_write_batch_bytes
    head[layout.TURNAROUND] = round(machine.dram_turnaround_ns * clock_mhz / 1000 * grains)
    return head


def _assemble(head: NDArray[np.int64], ports: int, spaces: list[StreamSpace], with_tags: bool) -> NDArray[np.int64]:
    """Return a buffer of header, channels, ports, stream rows and, where there are tags, the entries of all blocks."""
    head = head.copy()
    head[layout.CHANNEL_BASE] = layout.HEADER_WORDS
    head[layout.PORT_BASE] = head[layout.CHANNEL_BASE] + layout.CHANNEL_WORDS * head[layout.CHANNELS]
    head[layout.PORTS] = ports
    head[layout.STREAM_BASE] = head[layout.PORT_BASE] + 2 * ports
    head[layout.STREAMS] = len(spaces)
    words = int(head[layout.STREAM_BASE]) + len(spaces) * layout.STREAM_WORDS
    first_entry: dict[int, int] = {}
    addresses: dict[int, int] = {}
    address, pair = 0, 2 * int(head[layout.UNIT])
    for space in spaces:
        if space.number not in first_entry:
            first_entry[space.number] = words
            words += space.blocks * (layout.ENTRY_WORDS + space.pieces) if with_tags else 0
            head[layout.FOOTPRINT] += space.bytes
            addresses[space.number] = address
            address += -(-space.bytes // pair) * pair
    buffer = np.zeros(words, dtype=np.int64)
    buffer[: layout.HEADER_WORDS] = head
    _fill_buffers(buffer, with_tags)
    for number, space in enumerate(spaces):
        row = int(head[layout.STREAM_BASE]) + number * layout.STREAM_WORDS
        buffer[row + layout.STREAM_ENTRIES] = first_entry[space.number]
        buffer[row + layout.STREAM_BLOCKS] = space.blocks
        buffer[row + layout.STREAM_STRIDE] = layout.ENTRY_WORDS + space.pieces
        buffer[row + layout.STREAM_PIECES] = space.pieces
        buffer[row + layout.STREAM_PIECE_BYTES] = space.piece_bytes
        buffer[row + layout.STREAM_ADDRESS] = addresses[space.number]
    return buffer


def _fill_buffers(buffer: NDArray[np.int64], each: bool) -> None:
    """Fill the write buffers of all channels to different levels, as earlier kernels left them.

    `each`: the level of each is followed (`memory_dram`); else all grow alike, and it is known which comes next
    (`memory_represent`).
    """
    channels = int(buffer[layout.CHANNELS])
    words = buffer[buffer[layout.CHANNEL_BASE] :][: layout.CHANNEL_WORDS * channels].reshape(-1, channels)
    levels = np.array([first_fill(buffer, channel) for channel in range(channels)], dtype=np.int64)
    if each:
        words[1] = 2 * levels
    else:
        words[2] = np.argsort(-levels, kind="stable")
        buffer[layout.NEXT_BATCH] = next_batch(buffer)


def _check(machine: Machine, mode: str, l2_state: str, clock_mhz: float) -> None:
    """Raise UserError for an unknown mode, L2 state or a clock that is none."""
    if mode not in MODES:
        raise unknown_name("simulation mode", mode, MODES)
    if l2_state not in L2_STATES:
        raise unknown_name("L2 state", l2_state, L2_STATES)
    if not 0 < clock_mhz <= 10 * machine.max_clock_mhz:
        raise UserError(f"a clock of {clock_mhz} MHz; {machine.name} runs at up to {machine.max_clock_mhz} MHz")


def build_memory(
    program: WarpProgram,
    machine: Machine,
    plan: LaunchPlan,
    *,
    mode: Mode,
    clock_mhz: float,
    l2_state: L2State = "warm",
) -> MemorySystem:
    """Return the memory system at the start of a kernel.

    `chip`: simulated SM i is SM i of the chip. `representative`, `sm`: simulated SM i is SM i of group
    `plan.representative`. Raises UserError on a bad mode, state or clock.
    """
    _check(machine, mode, l2_state, clock_mhz)
    spaces = stream_spaces(program)
    group = plan.group_sms(plan.representative)
    first_sm, ports = (0, machine.sms) if mode == "chip" else (group[0], len(group))
    head = _header(machine, mode, clock_mhz, plan.used_groups, first_sm)
    tags = _assemble(head, ports, spaces, with_tags=True)
    if l2_state == "flushed":
        tags[layout.FLUSH_LEFT] = tags[layout.CAPACITY]
    if l2_state == "warm":
        tilepass.warm_up(tags, program, plan, spaces)
    if mode != "representative":
        return MemorySystem(buffer=tags, mode=mode, chip=None)
    record = tilepass.play_chip(tags, program, plan, spaces)
    bare = _assemble(head, ports, spaces, with_tags=False)
    whole = tilepass.with_records(bare, record)
    return MemorySystem(buffer=whole, mode=mode, chip=read_traffic(tags))


def initial_l2(
    program: WarpProgram, machine: Machine, plan: LaunchPlan, l2_state: L2State
) -> list[tuple[str, int, int, int]]:
    """Return what L2 holds at the start: (space's first stream, block, resident mask, dirty mask), oldest first."""
    memory = build_memory(
        program, machine, plan, mode="chip", clock_mhz=machine.max_clock_mhz, l2_state=l2_state
    ).buffer
    found: list[tuple[str, int, int, int]] = []
    names = _space_names(program)
    entry = int(memory[layout.TAIL])
    while entry:
        row = int(memory[entry + layout.ENTRY_STREAM])
        stream = (row - int(memory[layout.STREAM_BASE])) // layout.STREAM_WORDS
        block = (entry - int(memory[row + layout.STREAM_ENTRIES])) // int(memory[row + layout.STREAM_STRIDE])
        masks = int(memory[entry + layout.ENTRY_RESIDENT]), int(memory[entry + layout.ENTRY_DIRTY])
        found.append((names[stream], block, *masks))
        entry = int(memory[entry + layout.ENTRY_NEWER])
    return found


def _space_names(program: WarpProgram) -> list[str]:
    """Return for each stream the name of the first stream of its space."""
    first: dict[int, str] = {}
    return [
        first.setdefault(space.number, stream.name)
        for space, stream in zip(stream_spaces(program), program.streams, strict=True)
    ]
