"""A kernel of a cubin as a warp program that the simulator runs, and what of it is not modelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from heddle.errors import UserError
from heddle.frontends.sass.branches import BRANCHES, NEVER, Branch, branch_row, branches, enters_a_loop, loop_levels
from heddle.frontends.sass.rows import control_of, rows_of
from heddle.frontends.sass.table import find
from heddle.ir.warp import LOOP_LEVELS, Instruction, Role, Source, Stream, StreamRef, Tensor, WarpProgram, Work
from heddle.ir.warp_fiber import FIBERS
from heddle.isa.cubin.cubin import Cubin, Function
from heddle.isa.cubin.lines import line_of_instructions
from heddle.isa.cubin.resources import resources
from heddle.isa.emission.form import code_of
from heddle.isa.table import Table, load_table
from heddle.isa.words import WORD_BYTES, to_ints

CTA = "cta"
DIRECTIONS = {"LDG": "load", "LDGSTS": "load", "STG": "store", "RED": "reduce"}
BYTE = "fp8_e4m3"
"""A type of one byte, for memory of which only the size is known."""
SET_FIBER_NUM = 0x9F8


@dataclass(frozen=True, slots=True)
class Lifted:
    """A program, the instructions of its kernel, and how many of each opcode became NOPs for want of a model."""

    program: WarpProgram
    instructions: int
    unmodelled: Mapping[str, int]


def lift(
    cubin: Cubin, name: str | None = None, *, warps: int = 0, ctas: int = 1, trips: int = 1,
    take: Collection[int] = (),
) -> Lifted:  # fmt: skip
    """Return a kernel of a cubin as a warp program.

    `warps` of a CTA: else what the file says (SET_FIBER_NUM, or the size of block that it was made for). `ctas` are
    launched, each loop goes `trips` rounds; `take`: offsets in bytes of conditional branches that are taken. Raises
    UserError for an unknown kernel or numbers that make no sense.
    """
    if ctas < 1 or trips < 1 or warps < 0:
        raise UserError(f"{ctas} CTAs, {trips} rounds of a loop, {warps} warps; needs 1 or more of each")
    kernel = _kernel(cubin, name)
    start = kernel.start // WORD_BYTES
    words = to_ints(cubin.words(kernel.section)[start : start + kernel.size // WORD_BYTES])
    warps = warps or _warps(cubin, kernel, words)
    unmodelled: Counter[str] = Counter()
    rows, places = _rows(words, cubin.architecture, warps, unmodelled)
    found = branches(words, cubin.architecture)
    levels = loop_levels(found)
    _check_taken(take, found)
    exits = [at for at, word in enumerate(words) if rows[places[at]].op == "EXIT"]
    for at, branch in found.items():
        taken = at * WORD_BYTES in take or enters_a_loop(branch, found, exits)
        row = branch_row(branch, words[at], levels.get(at), trips, places, taken)
        if row is None:
            unmodelled["BRA (loops nested too deeply)"] += 1
        rows[places[at]] = row or Instruction(op="NOP", control=control_of(words[at]))
    sources = _sources(cubin, kernel, start, len(words))
    owners = [at for at, count in enumerate(_lengths(places, len(rows))) for _ in range(count)]
    if rows[-1].op != "EXIT":  # padding behind the code
        rows.append(Instruction(op="EXIT"))
        owners.append(owners[-1])
    rows = [replace(row, source=owners[pc]) for pc, row in enumerate(rows)]
    rows, streams = _streams(rows, owners, found, levels, warps=warps, ctas=ctas, trips=trips)
    program = _program(cubin, kernel, tuple(rows), streams, sources, warps, ctas)
    return Lifted(program, len(words), dict(unmodelled))


def _check_taken(take: Collection[int], found: Mapping[int, Branch]) -> None:
    """Raise UserError for an offset at which no conditional branch forward is."""
    there = [at * WORD_BYTES for at, branch in found.items() if branch.conditional and branch.target > at]
    wrong = next((offset for offset in take if offset not in there), None)
    if wrong is not None:
        raise UserError(
            f"no conditional branch forward at {wrong:#x}; there are: {', '.join(map(hex, there)) or 'none'}"
        )


def _kernel(cubin: Cubin, name: str | None) -> Function:
    if name is not None:
        return cubin.kernel(name)
    if len(cubin.kernels) != 1:
        names = ", ".join(kernel.name for kernel in cubin.kernels) or "none"
        raise UserError(f"{cubin.what} has {len(cubin.kernels)} kernels: {names}", hint="say which: --kernel NAME")
    return cubin.kernels[0]


def _warps(cubin: Cubin, kernel: Function, words: list[int]) -> int:
    for word in words:
        if code_of(word) == SET_FIBER_NUM and word >> 16 & 0xFFFF:
            return -(-(word >> 16 & 0xFFFF) // FIBERS)
    needed = resources(cubin, kernel)
    threads = needed.required_threads or needed.max_threads
    if threads is None:
        raise UserError(
            f"{cubin.what} does not say how many threads a block of {kernel.name} has", hint="say it: --warps N"
        )
    return -(-threads // FIBERS)


def _rows(
    words: list[int], architecture: str, warps: int, unmodelled: Counter[str]
) -> tuple[list[Instruction], list[int]]:
    """Return the rows, without branches and streams, and the first row of each instruction."""
    rows: list[Instruction] = []
    places = []
    table = load_table(architecture)
    copies = any(code_of(word) == 0x9AF for word in words)
    for word in words:
        places.append(len(rows))
        made = rows_of(word, warps)
        if made is not None and made[0].op == "DEPBAR" and not copies:
            made = None  # it waits for a counter that no group of copies moves
        if made is None and code_of(word) in BRANCHES:
            made = [Instruction(op="NOP", control=control_of(word))]  # becomes a branch, where it leads somewhere
        if made is None:
            unmodelled[_name(word, table)] += 1
            made = [Instruction(op="NOP", control=control_of(word))]
        rows += made
    return rows, places


def _name(word: int, table: Table) -> str:
    """Return the mnemonic of a word, its opcode where the tables do not know it."""
    entry, form = find(code_of(word)), table.find(word)
    if entry is not None:
        return entry.name
    return form.name if form is not None else f"0x{code_of(word):x}"


def _lengths(places: list[int], total: int) -> list[int]:
    return [end - start for start, end in zip(places, [*places[1:], total], strict=True)]


def _sources(cubin: Cubin, kernel: Function, start: int, count: int) -> tuple[Source, ...]:
    """Return the source line of each instruction; without a line table its offset in the kernel."""
    lines = line_of_instructions(cubin, kernel.section, start + count)[start:]
    return tuple(
        Source(file=line.file, line=line.line, operation=kernel.name)
        if line
        else Source(file=kernel.name, line=at * WORD_BYTES, operation=kernel.name)
        for at, line in enumerate(lines)
    )


def _streams(
    rows: list[Instruction], owners: list[int], found: Mapping[int, Branch], levels: Mapping[int, int],
    *, warps: int, ctas: int, trips: int,
) -> tuple[list[Instruction], list[Stream]]:  # fmt: skip
    """Give each access to global memory a stream of its own: each warp goes through memory that nobody else touches."""
    made: list[Stream] = []
    result = []
    for pc, row in enumerate(rows):
        if row.op not in DIRECTIONS:
            result.append(row)
            continue
        at = owners[pc]
        inside = [levels[k] for k, branch in found.items() if k in levels and branch.target <= at < k]
        level = max((one for one in inside if one < LOOP_LEVELS), default=0)
        rounds = trips if inside else 1
        name = f"{row.op.lower()}{at}"
        made.append(
            Stream(
                name=name, tensor=name, direction=DIRECTIONS[row.op], blocks=ctas * rounds,  # type: ignore[arg-type]
                block_bytes=row.bytes * warps, base=CTA, level=level, step=ctas if inside else 0,
            )
        )  # fmt: skip
        result.append(replace(row, stream=StreamRef(name=name, parts=warps, part_by_rank=True)))
    return result, made


def _program(
    cubin: Cubin, kernel: Function, rows: tuple[Instruction, ...], streams: list[Stream],
    sources: tuple[Source, ...], warps: int, ctas: int,
) -> WarpProgram:  # fmt: skip
    needed = resources(cubin, kernel)
    used = [register for row in rows for register in (row.dst, *row.src) if register is not None]
    named = max((r.index + r.count for r in used if r.index != 255), default=1)
    registers = max(needed.registers or 0, named)
    tensors = tuple(
        Tensor(name=s.name, shape=(s.blocks, s.block_bytes), dtype=BYTE, role=_role(s.direction)) for s in streams
    )
    return WarpProgram(
        name=kernel.name,
        architecture=cubin.architecture,
        instructions=rows,
        roles=(Role(name="block", first_warp=0, warps=warps, entry=0, registers_per_thread=registers),),
        tensors=tensors,
        streams=tuple(streams),
        work=Work(
            attributes=(CTA, NEVER), items=np.array([[i, 0] for i in range(ctas)], np.int64), schedule="launch",
            grid=ctas,
        ),
        sources=sources,
        shared_memory_bytes=needed.static_shared_bytes,
        mode="cuda-native" if any(row.op == "SETFIBER" for row in rows) else "simt",
    )  # fmt: skip


def _role(direction: str) -> Literal["input", "output"]:
    return "input" if direction == "load" else "output"
