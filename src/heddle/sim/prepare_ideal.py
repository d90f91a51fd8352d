"""What an idealised simulation knows of a program: pieces of code, true dependences, tiles, and other units.

The tables are appended to the rows of the program; `core.layout_ideal` has their layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UnsupportedError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c
from heddle.sim.core import layout_ideal as d
from heddle.sim.ideal import Ideal
from heddle.sim.ideal_tiles import Tile, tiles_of
from heddle.sim.prepare import branch_targets
from heddle.sim.prepare_units import product_ticks

MEETINGS = frozenset({Unit.BARRIER_SYNC, Unit.BARRIER_ARRIVE, Unit.CLUSTER_SYNC})
WAITS = frozenset({Unit.MBARRIER_WAIT, Unit.BARRIER_SYNC, Unit.CLUSTER_SYNC, Unit.SEM_ACQUIRE})
BRANCHES = frozenset({Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.EXIT})
SYNCHRONISATION = MEETINGS | WAITS | {Unit.MBARRIER_EXPECT, Unit.MBARRIER_ARRIVE, Unit.SEM_RELEASE}
"""What does nothing where barriers are off."""
REGISTER_UNITS = frozenset({Unit.FIXED, Unit.VARIABLE})
SET_PREDICATES = frozenset({"FSETP", "ISETP", "PLOP3", "R2P"})
READ_PREDICATES = frozenset({"FSEL", "SEL", "PLOP3"})
PRODUCTS = frozenset({Unit.WGMMA})
TOUCHES_DATA = frozenset({Unit.WGMMA, Unit.SHARED, Unit.GLOBAL, Unit.BULK_LOAD, Unit.BULK_STORE})


def unit_of(instruction: Instruction) -> Unit:
    """Return the unit of an instruction."""
    return OPCODES[instruction.op].unit


def registers(group: Iterable[Register]) -> tuple[int, ...]:
    """Return the registers that operands name, RZ left out."""
    return tuple(r.index + i for r in group if not (r.place is None and r.index == RZ) for i in range(r.count))


def sources_of(instruction: Instruction) -> tuple[int, ...]:
    """Return what an instruction reads: operands, accumulators, predicates."""
    group = list(instruction.src)
    if instruction.dst is not None and is_matrix(instruction):
        group.append(instruction.dst)
    predicates = (d.PREDICATES,) if instruction.op in READ_PREDICATES else ()
    return (*dict.fromkeys(registers(group)), *predicates)


def destinations_of(instruction: Instruction) -> tuple[int, ...]:
    """Return what an instruction writes."""
    named = registers((instruction.dst,)) if instruction.dst is not None else ()
    return (*named, d.PREDICATES) if instruction.op in SET_PREDICATES else named


def is_matrix(instruction: Instruction) -> bool:
    """Tell whether the destination is an accumulator."""
    return instruction.op == "HMMA" or unit_of(instruction) in PRODUCTS


def turns_of(program: WarpProgram) -> frozenset[int]:
    """Return the named barriers that only order products: behind their BAR.SYNC nothing else touches data first."""
    sync = [pc for pc, i in enumerate(program.instructions) if unit_of(i) is Unit.BARRIER_SYNC]
    firsts: dict[int, set[Unit]] = {}
    for pc in sync:
        following = (unit_of(i) for i in program.instructions[pc + 1 :])
        first = next((unit for unit in following if unit in TOUCHES_DATA or unit in BRANCHES), Unit.EXIT)
        firsts.setdefault(program.instructions[pc].barrier_id, set()).add(first)
    return frozenset(number for number, units in firsts.items() if units == {Unit.WGMMA})


def matrix_pcs(program: WarpProgram) -> frozenset[int]:
    """Return the instructions of the roles that issue products."""
    found: set[int] = set()
    for role in program.roles:
        pcs = list(role_pcs(program, role.entry))
        if any(unit_of(program.instructions[pc]) in PRODUCTS for pc in pcs):
            found.update(pcs)
    return frozenset(found)


def role_pcs(program: WarpProgram, entry: int) -> Iterable[int]:
    """Yield the instructions of a role, up to its EXIT."""
    for pc in range(entry, len(program.instructions)):
        yield pc
        if unit_of(program.instructions[pc]) is Unit.EXIT:
            return


def units_of(program: WarpProgram, ideal: Ideal) -> list[Unit]:
    """Return the unit of each instruction under what is idealised; what does nothing any more is a plain slot."""
    turns = turns_of(program) if ideal.warp_products else frozenset()
    products = matrix_pcs(program) if ideal.warp_products else frozenset()
    found = []
    for pc, instruction in enumerate(program.instructions):
        unit = unit_of(instruction)
        turn = unit in MEETINGS and unit is not Unit.CLUSTER_SYNC and instruction.barrier_id in turns
        if (ideal.no_barriers and unit in SYNCHRONISATION) or turn or (ideal.warp_products and unit is Unit.WGMMA_ARRIVE):
            unit = Unit.FIXED
        elif unit is Unit.MBARRIER_ARRIVE and instruction.by == "group" and pc in products:
            unit = Unit.WGMMA_SIGNAL
        found.append(unit)
    return found


def kind_of(instruction: Instruction, unit: Unit) -> int:
    """Return the KIND_* of an instruction that acts as `unit`."""
    registers_only = unit_of(instruction) in REGISTER_UNITS
    unnamed = registers_only and instruction.dst is None
    kind = d.KIND_UNNAMED * unnamed
    kind |= d.KIND_ORDERED * (not registers_only or unnamed or bool(instruction.advance))
    kind |= d.KIND_FENCE * (unit in WAITS or unit in BRANCHES)
    return kind | d.KIND_MATRIX * (unit in PRODUCTS)


@dataclass(slots=True)
class Tables:
    """Words that are appended to the rows, from address `start` on."""

    start: int
    words: list[int] = field(default_factory=list)

    def put(self, words: Sequence[int]) -> int:
        """Append words and return their address."""
        self.words.extend(words)
        return self.start + len(self.words) - len(words)

    def listed(self, words: Sequence[int], size: int = 1) -> int:
        """Append a list of entries of `size` words, its length before it."""
        return self.put([len(words) // size, *words])


@dataclass(slots=True)
class Piece:
    """True dependences of a straight piece of code, found by renaming: who wrote last what an instruction reads."""

    writer: dict[int, int] = field(default_factory=dict)  # place of the last writer of each register so far
    users: list[list[int]] = field(default_factory=list)  # places that read the result of each instruction
    needs: list[int] = field(default_factory=list)  # how many earlier instructions each one waits for
    inputs: list[list[int]] = field(default_factory=list)  # registers from before the piece that it reads
    chain: list[list[int]] = field(default_factory=list)  # and those that it accumulates into

    def add(self, instruction: Instruction, kinds: Sequence[int]) -> None:
        """Append an instruction; `kinds`: KIND_* of those of the piece. A product does not wait for one before it on
        the same accumulators: they follow each other in the matrix unit.
        """
        place = len(self.needs)
        own = set(destinations_of(instruction)) if kinds[place] & d.KIND_MATRIX else set()
        sources = sources_of(instruction)
        before = {
            self.writer[register]
            for register in sources
            if register in self.writer and not (register in own and kinds[self.writer[register]] & d.KIND_MATRIX)
        }
        for producer in before:
            self.users[producer].append(place)
        outside = [register for register in sources if register not in self.writer]
        self.inputs.append([register for register in outside if register not in own])
        self.chain.append([register for register in outside if register in own])
        self.needs.append(len(before))
        self.users.append([])
        self.writer.update(dict.fromkeys(destinations_of(instruction), place))


def piece_words(program: WarpProgram, kinds: Sequence[int], first: int, tables: Tables) -> list[int]:
    """Return the record of the piece that starts at `first` (D_), after putting its lists into the tables."""
    piece, window = Piece(), kinds[first:]
    for pc in range(first, len(program.instructions)):
        piece.add(program.instructions[pc], window)
        if kinds[pc] & d.KIND_FENCE:
            break
    writers = [(register, place, int(bool(kinds[first + place] & d.KIND_MATRIX)))
               for register, place in piece.writer.items()]  # fmt: skip
    words = [len(piece.needs), tables.listed([word for writer in writers for word in writer], d.WRITER_WORDS)]
    for place, needs in enumerate(piece.needs):
        lists = piece.users[place], piece.inputs[place], piece.chain[place]
        words += [needs, *(tables.listed(entries) for entries in lists)]
    return words


def starts_of(program: WarpProgram, kinds: Sequence[int]) -> list[int]:
    """Return where control may come from elsewhere, and what follows a fence."""
    after = {pc + 1 for pc, kind in enumerate(kinds) if kind & d.KIND_FENCE and pc + 1 < len(kinds)}
    return sorted(branch_targets(program) | after)


def prepare_ideal(
    program: WarpProgram, rows: NDArray[np.int64], ideal: Ideal
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Return the rows with the tables appended, and where they are and how long the longest piece is.

    Raises UnsupportedError for programs that an idealisation means nothing for.
    """
    units = units_of(program, ideal)
    tiles = tiles_of(program) if ideal.no_barriers or ideal.warp_products else {}
    kinds = [kind_of(i, unit) for i, unit in zip(program.instructions, units, strict=True)]
    count = len(program.instructions)
    tables = Tables(len(rows) + count * d.I_WORDS)
    pcs = np.zeros((count, d.I_WORDS), dtype=np.int64)
    for pc, instruction in enumerate(program.instructions):
        change_unit(rows, pc, instruction, units[pc])
        pcs[pc, d.I_KIND] = kinds[pc]
        pcs[pc, d.I_SOURCES] = tables.listed(_other_sources(instruction, kinds[pc]))
        pcs[pc, d.I_DESTINATIONS] = tables.listed(destinations_of(instruction))
        pcs[pc, d.I_TILES] = tables.listed([w for tile in tiles.get(pc, ()) for w in _tile(tile)], d.TILE_WORDS)
    longest = 1
    for first in starts_of(program, kinds) if ideal.free_order else ():
        piece = piece_words(program, kinds, first, tables)
        longest = max(longest, piece[d.D_COUNT])
        pcs[first, d.I_PIECE] = tables.put(piece)
    extended = np.concatenate([rows, pcs.reshape(-1), np.array(tables.words, dtype=np.int64)])
    return extended, {"pcs": len(rows), "room": longest}


def _other_sources(instruction: Instruction, kind: int) -> tuple[int, ...]:
    """Return what an instruction reads that it does not accumulate into."""
    own = set(destinations_of(instruction)) if kind & d.KIND_MATRIX else set()
    return tuple(register for register in sources_of(instruction) if register not in own)


def _tile(tile: Tile) -> tuple[int, int, int, int]:
    return tile.barrier, tile.ring, tile.offset, tile.bytes


def change_unit(rows: NDArray[np.int64], pc: int, instruction: Instruction, unit: Unit) -> None:
    """Let a row act as another unit: a plain slot, or an arrival when a group's operands have been read."""
    if unit is unit_of(instruction):
        return
    at = pc * c.P_WORDS + c.P_FLAGS
    rows[at] &= ~(c.UNIT_MASK | c.FLAG_CONDITION)
    rows[at] |= unit
    if unit is Unit.WGMMA_SIGNAL:
        rows[at] &= ~(c.BY_MASK << c.BY_SHIFT)


def share_operands(rows: NDArray[np.int64], program: WarpProgram, machine: Machine) -> None:
    """Let operands of products, and the copies that bring them, take nothing of shared memory (the oracle rs)."""
    for pc, instruction in enumerate(program.instructions):
        cold = int(rows[pc * c.P_WORDS + c.P_COLD])
        unit = unit_of(instruction)
        if unit in PRODUCTS:
            rows[cold + c.X_BYTES] = rows[cold + c.X_SHARED] = 0
            rows[cold + c.X_DURATION] = product_ticks(program, machine, pc)
        elif unit is Unit.BULK_LOAD or instruction.op == "LDGSTS":
            rows[cold + c.X_SHARED] = 0


def idealised(
    program: WarpProgram, machine: Machine, rows: NDArray[np.int64], ideal: Ideal
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Return the rows of a program under what is idealised, and where its tables are (`prepare_ideal`).

    Raises UnsupportedError where an idealisation means nothing.
    """
    if ideal:
        refuse(program, ideal)
    if ideal.shared_operands:
        share_operands(rows, program, machine)
    return prepare_ideal(program, rows, ideal) if ideal.steps else (rows, {})


def refuse(program: WarpProgram, ideal: Ideal) -> None:
    """Raise UnsupportedError where an idealisation means nothing."""
    units = {unit_of(instruction) for instruction in program.instructions}
    if program.mode != "simt":
        raise UnsupportedError(
            f"oracles and switches are about today's machine; {program.name} is of mode {program.mode}",
            hint="leave --mode out; what FIBER gives is in `heddle compare`",
        )
    if (ideal.warp_products or ideal.shared_operands) and Unit.WGMMA not in units:
        raise UnsupportedError(
            f"{program.name} has no warp-group matrix instructions, which the oracles fs and rs are about",
            hint="dp is possible on every GPU; fs and rs on h100 and h200",
        )
    if ideal.steps and Unit.TCGEN05_MMA in units and (ideal.no_barriers or ideal.warp_products):
        raise UnsupportedError(f"{program.name} gets its products through mbarriers (tcgen05): they cannot be off")
    if ideal.warp_products and Unit.WGMMA_SIGNAL in units:
        raise UnsupportedError(f"{program.name} gives stages back early by itself; fs is about the baseline")
