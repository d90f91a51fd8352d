"""The memory system of the chip: L2 server and tags, DRAM channels, ports of the SMs.

Plain version of docs/reference/engine.md, section 5. Times are integers of 1/65536 cycle ("grains").
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine

GRAINS = 1 << 16  # a cycle
CHUNK_BYTES = 1024
MAX_PIECES = 62


def coefficient(bytes_per_cycle: float) -> int:
    """Return K of a rate, the factor from bytes to a duration."""
    return round(2**40 / bytes_per_cycle)


def length(amount: int, factor: int) -> int:
    """Return the grains that `amount` bytes take."""
    return (amount * factor + 2**23) >> 24


class SharedServer:
    """A server that is charged from the issue of a request; its data leave when the request has come."""

    def __init__(self, bytes_per_cycle: float) -> None:
        self._factor = coefficient(bytes_per_cycle)
        self.free = 0

    def charge(self, now: int, reached: int, amount: int) -> int:
        """Charge `amount` bytes for a request issued at `now` that comes at `reached`; return when they leave."""
        d = length(amount, self._factor)
        self.free = max(self.free, now) + d
        return max(self.free, reached + d)


@dataclass(slots=True)
class Space:
    """Blocks of a tensor as a set of streams cuts them; `first_chunk` numbers the chunks of the whole chip."""

    number: int
    blocks: int
    pieces: int
    piece_bytes: int
    first_chunk: int

    @property
    def chunks_per_piece(self) -> int:
        """1 KB chunks of a piece, the last may be shorter."""
        return max(1, -(-self.piece_bytes // CHUNK_BYTES))

    def pieces_of(self, part: int, parts: int) -> range:
        """Return the pieces that part `part` of `parts` covers."""
        part %= parts
        begin = part * self.pieces // parts
        return range(begin, max(begin + 1, (part + 1) * self.pieces // parts))

    def first_chunk_of(self, block: int, piece: int) -> int:
        """Return the number of a piece's first chunk."""
        return self.first_chunk + (block * self.pieces + piece) * self.chunks_per_piece


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


def block_spaces(program: WarpProgram) -> dict[str, Space]:
    """Return the space of every stream by name; streams that cut a tensor alike share one."""
    key_of = {stream.name: (stream.tensor, stream.blocks, stream.block_bytes) for stream in program.streams}
    parts: dict[tuple[str, int, int], set[int]] = {key: {1} for key in key_of.values()}
    for instruction in program.instructions:
        if instruction.stream is not None:
            parts[key_of[instruction.stream.name]].add(max(1, instruction.stream.parts))
    spaces: dict[tuple[str, int, int], Space] = {}
    first_chunk = 0
    for key in dict.fromkeys(key_of.values()):
        common = math.lcm(*parts[key])
        pieces = max(count for count in range(1, MAX_PIECES + 1) if common % count == 0)
        space = Space(len(spaces), key[1], pieces, -(-key[2] // pieces), first_chunk)
        spaces[key] = space
        first_chunk += space.blocks * space.pieces * space.chunks_per_piece
    return {name: spaces[key] for name, key in key_of.items()}


def mix(x: int) -> int:
    """Scramble a number of 31 bits."""
    x = ((x ^ (x >> 15)) * 0x1E3779B1) % 2**31
    x = ((x ^ (x >> 13)) * 0x2545F491) % 2**31
    return x ^ (x >> 16)


class MemorySystem:
    """L2, DRAM and the ports of all SMs. `share` divides the rates of L2 and DRAM (mode `sm`)."""

    def __init__(self, machine: Machine, clock_mhz: float, l2_state: str, share: int) -> None:
        self._machine = machine
        self._l2 = SharedServer(machine.l2_bytes_per_cycle_per_sm * machine.sms / share)
        self._write_cost = round(GRAINS * machine.l2_write_cost)  # read bytes of service, in 1/65536
        channels = max(1, machine.dram_channels // share)
        channel_rate = machine.dram_bytes_per_cycle(clock_mhz) / share / channels
        self._channels = [SharedServer(channel_rate) for _ in range(channels)]
        self._dram_extra = round(GRAINS * machine.dram_extra_latency_ns * clock_mhz / 1000)
        self._port_factor = coefficient(machine.l2_port_bytes_per_cycle)
        self._ports: dict[int, int] = {}  # SM -> next free time
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

    def store(self, request: Request, sm: int, *, reduce: bool) -> int:
        """Serve a store or reduction; return the cycle in which it is visible."""
        if request.outside:
            return request.leaves + self._latency(request, sm) + request.extra
        self.l2_write_bytes += request.bytes
        service = (request.bytes * self._write_cost + GRAINS // 2) // GRAINS
        leaves_l2 = self._l2.charge(request.now * GRAINS, request.leaves * GRAINS, service)
        block, missing = self._use(request)
        if missing and reduce:
            self._fetch(request, block, missing, leaves_l2, sm)
        block.dirty |= set(request.space.pieces_of(request.part, request.parts))
        return leaves_l2 // GRAINS + self._machine.store_latency_cycles

    def _latency(self, request: Request, sm: int) -> int:
        """Return the L2 latency for an SM in cycles."""
        odd = (request.block + request.part % request.parts + sm) % 2 == 1
        far = self._machine.l2_partitions > 1 and (request.bytes > CHUNK_BYTES or odd)
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
            ends += self._move(request.space, request.block, piece, request.now, leaves_l2)
            self.dram_read_bytes += request.space.piece_bytes
        latency = (self._latency(request, sm) + request.extra) * GRAINS
        for piece in missing:
            block.ready[piece] = max(ends) + latency + self._dram_extra

    def _move(self, space: Space, block: int, piece: int, now: int, reached: int) -> list[int]:
        """Charge the channels for all chunks of a piece; return when each leaves."""
        ends, left = [], space.piece_bytes
        for chunk in range(space.chunks_per_piece):
            amount = min(left, CHUNK_BYTES)
            left -= amount
            number = space.first_chunk_of(block, piece) + chunk
            ends.append(self._channel(number).charge(now * GRAINS, reached, amount))
        return ends

    def _channel(self, chunk: int) -> SharedServer:
        channels = len(self._channels)
        return self._channels[(chunk + mix(chunk // channels % 2**31)) % channels]

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
            self._channel(self._other_chunks).charge(now * GRAINS, now * GRAINS, CHUNK_BYTES)
            self._other_chunks += 1
            self.dram_write_bytes += CHUNK_BYTES

    def _evict(self, key: tuple[int, int], now: int) -> None:
        number, block_index = key
        space, block = self._spaces[number], self._blocks.pop(key)
        self.resident_bytes -= len(block.ready) * space.piece_bytes
        for piece in sorted(block.dirty):
            self._move(space, block_index, piece, now, now * GRAINS)
            self.dram_write_bytes += space.piece_bytes
