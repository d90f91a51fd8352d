"""The memory system of the chip: L2 server and tags, ports of the SMs.

Plain version of docs/reference/engine.md, section 5. Times are integers of 1/65536 cycle ("grains").
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.reference.dram import Dram
from heddle.sim.reference.servers import GRAINS, SharedServer, coefficient, length

CHUNK_BYTES = 1024
MAX_PIECES = 62


@dataclass(slots=True)
class Space:
    """Blocks of a tensor as a set of streams cuts them; `address` is that of block 0."""

    number: int
    blocks: int
    pieces: int
    piece_bytes: int
    address: int

    def pieces_of(self, part: int, parts: int) -> range:
        """Return the pieces that part `part` of `parts` covers."""
        part %= parts
        begin = part * self.pieces // parts
        return range(begin, max(begin + 1, (part + 1) * self.pieces // parts))

    def address_of(self, block: int, piece: int) -> int:
        """Return the address of a piece."""
        return self.address + (block * self.pieces + piece) * self.piece_bytes


@dataclass(slots=True)
class Block:
    """A block in L2: resident pieces with the time at which each is there, and which are dirty."""

    ready: dict[int, int] = field(default_factory=dict)  # piece -> grains
    dirty: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Request:
    """An access: `now` is the issue cycle, `leaves` the cycle in which it reaches L2 (q), `extra` latency in cycles."""

    space: Space
    block: int
    part: int
    parts: int
    bytes: int
    now: int
    leaves: int
    extra: int = 0

    @property
    def outside(self) -> bool:
        """Whether the block lies outside the tensor."""
        return not 0 <= self.block < self.space.blocks


def block_spaces(program: WarpProgram, unit: int) -> dict[str, Space]:
    """Return the space of every stream by name; streams that cut a tensor alike share one. `unit`: bytes of a unit."""
    key_of = {stream.name: (stream.tensor, stream.blocks, stream.block_bytes) for stream in program.streams}
    parts: dict[tuple[str, int, int], set[int]] = {key: {1} for key in key_of.values()}
    for instruction in program.instructions:
        if instruction.stream is not None:
            parts[key_of[instruction.stream.name]].add(max(1, instruction.stream.parts))
    spaces: dict[tuple[str, int, int], Space] = {}
    address = 0
    for key in dict.fromkeys(key_of.values()):
        common = math.lcm(*parts[key])
        pieces = max(count for count in range(1, MAX_PIECES + 1) if common % count == 0)
        space = Space(len(spaces), key[1], pieces, -(-key[2] // pieces), address)
        spaces[key] = space
        address += math.ceil(space.blocks * space.pieces * space.piece_bytes / (2 * unit)) * 2 * unit
    return {name: spaces[key] for name, key in key_of.items()}


class MemorySystem:
    """L2, DRAM and the ports of all SMs. `share` divides the rates of L2 and DRAM (mode `sm`)."""

    def __init__(self, machine: Machine, clock_mhz: float, l2_state: str, share: int) -> None:
        self._machine = machine
        self._l2 = SharedServer(machine.l2_bytes_per_cycle_per_sm * machine.sms / share)
        self._write_cost = round(GRAINS * machine.l2_write_cost)  # read bytes of service, in 1/65536
        self._dram = Dram(machine, clock_mhz, share)
        self._dram_extra = round(GRAINS * machine.dram_extra_latency_ns * clock_mhz / 1000)
        self._port_factor = coefficient(machine.l2_port_bytes_per_cycle)
        self._ports: dict[int, int] = {}  # SM -> next free time, of loads
        self._sends: dict[int, int] = {}  # and of stores
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()  # the longest unused first
        self._spaces: dict[int, Space] = {}
        self.resident_bytes = 0
        self._other_bytes = machine.l2_bytes if l2_state == "flushed" else 0
        self._other_dirty = 0  # dirty bytes of other data that are replaced but not written yet, in 1/65536
        self._other_chunks = 0
        self.l2_read_bytes = self.l2_write_bytes = 0
        self.dram_read_bytes = self.dram_write_bytes = 0

    def place(self, space: Space, block: int, part: int, parts: int) -> None:
        """Make a part resident before the kernel starts."""
        if not 0 <= block < space.blocks:
            return
        self._spaces[space.number] = space
        resident = self._blocks.setdefault((space.number, block), Block()).ready
        for piece in space.pieces_of(part, parts):
            if piece not in resident:
                resident[piece] = 0
                self.resident_bytes += space.piece_bytes

    def load(self, request: Request, sms: Sequence[int]) -> list[int]:
        """Serve a load that is read once from L2; return the cycle in which each SM has the data."""
        if request.outside:
            return [request.leaves + self._latency(request, sm) + request.extra for sm in sms]
        self.l2_read_bytes += request.bytes
        leaves_l2 = self._l2.charge(request.now * GRAINS, request.leaves * GRAINS, request.bytes)
        block, missing = self._use(request)
        if missing:
            self._fetch(request, block, missing, leaves_l2, sms[0])
        on_its_way = max(block.ready[piece] for piece in request.space.pieces_of(request.part, request.parts))
        answers = []
        for sm in sms:
            own = leaves_l2 + (self._latency(request, sm) + request.extra) * GRAINS
            answers.append(self._pass_port(request, sm, max(own, on_its_way)))
        return answers

    def store(self, request: Request, sm: int, *, reduce: bool) -> tuple[int, int]:
        """Serve a store or reduction; return when it is visible and until when the SM holds the data, in cycles."""
        if request.outside:
            return request.leaves + self._latency(request, sm) + request.extra, 0
        self.l2_write_bytes += request.bytes
        service = (request.bytes * self._write_cost + GRAINS // 2) // GRAINS
        leaves_l2 = self._l2.charge(request.now * GRAINS, request.leaves * GRAINS, service)
        self._dram.taken = 0
        block, missing = self._use(request)
        d = length(request.bytes, self._port_factor)
        self._sends[sm] = max(self._sends.get(sm, 0), request.now * GRAINS) + d
        taken = max(self._dram.taken, self._sends[sm])
        if missing and reduce:
            self._fetch(request, block, missing, leaves_l2, sm)
        block.dirty |= set(request.space.pieces_of(request.part, request.parts))
        return max(leaves_l2, taken) // GRAINS + self._machine.store_latency_cycles, taken // GRAINS

    def _latency(self, request: Request, sm: int) -> int:
        """Return the L2 latency for an SM in cycles: by the unit of addresses in which the request begins."""
        unit_bytes, unit = self._machine.dram_interleave_bytes, 0
        if not request.outside:
            first = request.space.pieces_of(request.part, request.parts)[0]
            unit = request.space.address_of(request.block, first) // unit_bytes
        far = self._machine.l2_partitions > 1 and (request.bytes > unit_bytes or (unit + sm) % 2 == 1)
        return (self._machine.l2_far_latency_cycles if far else self._machine.l2_near_latency_cycles) - 1

    def _pass_port(self, request: Request, sm: int, ready: int) -> int:
        now, d = request.now * GRAINS, length(request.bytes, self._port_factor)
        last = length(min(request.bytes, CHUNK_BYTES), self._port_factor)
        self._ports[sm] = max(self._ports.get(sm, 0), now) + d
        way = (self._latency(request, sm) + request.extra) * GRAINS
        flows = request.leaves * GRAINS + way  # when the first byte can be there
        return max(self._ports[sm] + way, flows + d, ready + last) // GRAINS

    def _use(self, request: Request) -> tuple[Block, list[int]]:
        """Make the block the most recently used one and its pieces resident; return it and what was missing."""
        key = (request.space.number, request.block)
        self._spaces[request.space.number] = request.space
        block = self._blocks.setdefault(key, Block())
        self._blocks.move_to_end(key)
        missing = [p for p in request.space.pieces_of(request.part, request.parts) if p not in block.ready]
        for piece in missing:
            block.ready[piece] = 0
        self.resident_bytes += len(missing) * request.space.piece_bytes
        self._make_room(request.now, key)
        return block, missing

    def _fetch(self, request: Request, block: Block, missing: list[int], leaves_l2: int, sm: int) -> None:
        """Read missing pieces from DRAM; they are on their way until all of them are ready."""
        ends = [leaves_l2]
        for piece in missing:
            address = request.space.address_of(request.block, piece)
            ends += self._dram.read(request.now * GRAINS, leaves_l2, address, request.space.piece_bytes)
            self.dram_read_bytes += request.space.piece_bytes
        latency = (self._latency(request, sm) + request.extra) * GRAINS
        for piece in missing:
            block.ready[piece] = max(ends) + latency + self._dram_extra

    def _make_room(self, now: int, keep: tuple[int, int]) -> None:
        """Let other data, then the longest unused blocks leave until all fits."""
        excess = self.resident_bytes + self._other_bytes - self._machine.l2_bytes
        if excess > 0 and self._other_bytes > 0:
            self._replace_other(min(excess, self._other_bytes), now)
        while self.resident_bytes > self._machine.l2_bytes:
            oldest = next((key for key in self._blocks if key != keep), None)
            if oldest is None:
                return
            self._evict(oldest, now)

    def _replace_other(self, amount: int, now: int) -> None:
        self._other_bytes -= amount
        self._other_dirty += amount * round(GRAINS * self._machine.l2_flush_dirty_fraction)
        while self._other_dirty >= CHUNK_BYTES * GRAINS:
            self._other_dirty -= CHUNK_BYTES * GRAINS
            self._dram.write(now * GRAINS, self._other_chunks * CHUNK_BYTES, CHUNK_BYTES)
            self._other_chunks += 1
            self.dram_write_bytes += CHUNK_BYTES

    def _evict(self, key: tuple[int, int], now: int) -> None:
        number, block_index = key
        space, block = self._spaces[number], self._blocks.pop(key)
        self.resident_bytes -= len(block.ready) * space.piece_bytes
        for piece in sorted(block.dirty):
            self._dram.write(now * GRAINS, space.address_of(block_index, piece), space.piece_bytes)
            self.dram_write_bytes += space.piece_bytes
