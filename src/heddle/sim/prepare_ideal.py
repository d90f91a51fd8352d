"""What an idealised simulation knows of a program: pieces of code, true dependences, tiles, and other units.

The tables are appended to the rows of the program; `core.layout_ideal` has their layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UnsupportedError
from heddle.ir.opcodes import Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c
from heddle.sim.core import layout_ideal as d
from heddle.sim.ideal import Ideal
from heddle.sim.ideal_tiles import Tile, tiles_of
from heddle.sim.ideal_units import PRODUCTS, destinations_of, kind_of, sources_of, unit_of, units_of
from heddle.sim.prepare import branch_targets
from heddle.sim.prepare_units import product_ticks


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
    program: WarpProgram, machine: Machine, rows: NDArray[np.int64], ideal: Ideal
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Return the rows with the tables appended, and where they are and how long the longest piece is.

    Raises UnsupportedError for programs that an idealisation means nothing for.
    """
    units = units_of(program, ideal)
    tiles = tiles_of(program) if ideal.waits_for_tiles else {}
    kinds = [kind_of(i, unit) for i, unit in zip(program.instructions, units, strict=True)]
    count = len(program.instructions)
    tables = Tables(len(rows) + count * d.I_WORDS)
    pcs = np.zeros((count, d.I_WORDS), dtype=np.int64)
    for pc, instruction in enumerate(program.instructions):
        change_unit(rows, pc, instruction, units[pc], machine)
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


def change_unit(rows: NDArray[np.int64], pc: int, instruction: Instruction, unit: Unit, machine: Machine) -> None:
    """Let a row act as another unit: a plain slot, or an arrival when a group's operands have been read."""
    if unit is unit_of(instruction):
        return
    at = pc * c.P_WORDS + c.P_FLAGS
    rows[at] &= ~(c.UNIT_MASK | c.FLAG_CONDITION)
    rows[at] |= unit
    if unit is Unit.WGMMA_SIGNAL:
        rows[at] &= ~(c.BY_MASK << c.BY_SHIFT)
        rows[rows[pc * c.P_WORDS + c.P_COLD] + c.X_EXTRA] = max(1, machine.mbarrier_arrive_cycles)


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
    return prepare_ideal(program, machine, rows, ideal) if ideal.steps else (rows, {})


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
