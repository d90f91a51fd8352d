"""Is a patched cubin the same program after one SET_FIBER_NUM, and is every kind of damage found?"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cubins import BRANCH_SELF, EXIT, NOP, small_cubin
from heddle.errors import UserError
from heddle.isa.codec import decode
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import Cubin, opcodes, parse_cubin
from heddle.isa.cubin.elf import RELA, SYMBOL, Section
from heddle.isa.cubin.layout import write_elf
from heddle.isa.cubin.lines import read_lines
from heddle.isa.cubin.note import FiberKernel, Role, note_section, parse_note, read_note
from heddle.isa.cubin.patch import patch_entry, set_fiber_num
from heddle.isa.cubin.shift import insert
from heddle.isa.words import from_ints, put

ORIGINAL = parse_cubin(small_cubin())


def patched() -> Cubin:
    """Return the small cubin, patched."""
    return parse_cubin(patch_entry(ORIGINAL).data)


def changed(section: str, change: Callable[[Section], Section]) -> Cubin:
    """Return the patched cubin with one section changed."""
    cubin = patched()
    sections = tuple(change(one) if one.name == section else one for one in cubin.elf.sections)
    return parse_cubin(write_elf(replace(cubin.elf, sections=sections), cubin.elf))


def test_the_first_instruction_sets_the_number_of_fibers() -> None:
    words = patched().words(6)
    first = decode(words, "sm_90")[0]
    assert (first.name, first.operands[0].index, first.control.wait, first.control.stall) == (
        "SET_FIBER_NUM",
        128,
        63,
        1,
    )
    assert (words[1:8] == ORIGINAL.words(6)[:7]).all()


def test_nothing_else_differs() -> None:
    assert compare(ORIGINAL, patched()) == []


def test_symbols_attributes_and_relocations_follow() -> None:
    cubin = patched()
    assert [(f.name, f.start, f.size) for f in cubin.functions] == [("k", 0, 96), ("inner", 96, 32)]
    assert cubin.elf.sections[5].data[4:12] == (0x40).to_bytes(4, "little") + (0x70).to_bytes(4, "little")
    row = cubin.elf.sections[7].records(RELA)[0]
    assert (row["offset"], row["addend"]) == (0x30, 0x40)


def test_lines_follow() -> None:
    assert [(row.offset, row.line) for row in read_lines(patched()) if not row.end] == [(16, 10), (32, 11), (96, 16)]


def test_the_note_says_what_was_done() -> None:
    assert read_note(patched()) == (FiberKernel.cuda_native("k", 128),)


def test_a_note_of_a_native_kernel_is_read_as_written() -> None:
    kernel = FiberKernel("gemm", "fiber", 8192, "paper", 16, 500, 512, (Role(0, 3, 0, 0), Role(4, 255, 256, 0x400)))
    assert parse_note(note_section([kernel, FiberKernel.cuda_native("k", 7)]).data)[0] == kernel


def test_a_section_without_room_grows() -> None:
    full = parse_cubin(small_cubin([NOP, NOP, NOP, EXIT, BRANCH_SELF, NOP, EXIT, EXIT]))
    after = parse_cubin(patch_entry(full, 64).data)
    assert len(after.words(6)) == 16
    assert compare(full, after) == []


def test_an_unknown_block_needs_the_number_of_fibers() -> None:
    cubin = parse_cubin(small_cubin(threads=None))
    with pytest.raises(UserError, match="does not say how many threads"):
        patch_entry(cubin)
    assert patch_entry(cubin, 96).fibers == {"k": 96}


def test_a_patched_cubin_is_not_patched_again() -> None:
    with pytest.raises(UserError, match="patched already"):
        patch_entry(patched())


@pytest.mark.parametrize("fibers", [-1, 65_536])
def test_a_number_of_fibers_that_does_not_fit_is_refused(fibers: int) -> None:
    with pytest.raises(UserError, match="allowed are 1 to 65535"):
        set_fiber_num(fibers)


def test_insertion_outside_the_code_is_refused() -> None:
    words = from_ints([NOP, EXIT, NOP, NOP])
    for offset in (8, 32, -16):
        with pytest.raises(UserError, match="cannot insert"):
            insert(words, {offset: set_fiber_num(1)})


def flip(index: int, bit: int) -> Callable[[Section], Section]:
    """Return a change of one bit of the words of a section."""

    def change(section: Section) -> Section:
        data = bytearray(section.data)
        data[index * 16 + bit // 8] ^= 1 << bit % 8
        return section.with_data(bytes(data))

    return change


def symbol_back(section: Section) -> Section:
    rows = section.records(SYMBOL)
    rows["value"][3] -= 16
    return section.with_data(rows.tobytes())


def relocation(field: str) -> Callable[[Section], Section]:
    """Return a change that puts a field of a relocation back by an instruction."""

    def change(section: Section) -> Section:
        rows = section.records(RELA)
        rows[field] -= 16
        return section.with_data(rows.tobytes())

    return change


def branch_of(distance: int) -> Callable[[Section], Section]:
    """Return a change of where the branch of the kernel leads."""

    def change(section: Section) -> Section:
        words = np.frombuffer(section.data, "<u8").reshape(-1, 2).copy()
        put(words[2:3], 23, 16, distance // 4)
        return section.with_data(words.tobytes())

    return change


DAMAGE = {
    "a bit of an instruction": (".text.k", flip(4, 20)),
    "a bit that no text shows": (".text.k", flip(4, 126)),
    "a bit of a control field": (".text.k", flip(2, 105)),
    "where a branch leads": (".text.k", branch_of(32)),
    "a function": (".symtab", symbol_back),
    "the place of a relocation": (".rela.text.k", relocation("offset")),
    "an address in a relocation": (".rela.text.k", relocation("addend")),
    "an exit": (".nv.info.k", lambda one: one.with_data(one.data[:4] + b"\x30" + one.data[5:])),
    "an attribute": (".nv.info.k", lambda one: one.with_data(one.data[:14] + b"\x80" + one.data[15:])),
    "a line": (".debug_line", lambda one: one.with_data(one.data.replace(b"\x03\x09\x02", b"\x03\x08\x02"))),
    "the place of a line": (".rela.debug_line", lambda one: one.with_data(one.data[:-8] + b"\x10" + bytes(7))),
    "registers": (".nv.info", lambda one: one.with_data(one.data[:-4] + b"\x20\0\0\0")),
    "the size of shared memory": (".nv.shared.k", lambda one: replace(one, alignment=32)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_after_patching_is_found(what: str) -> None:
    assert compare(ORIGINAL, changed(*DAMAGE[what])) != []


def test_an_instruction_taken_out_is_found() -> None:
    gone = changed(".text.k", lambda one: one.with_data(one.data[:48] + one.data[64:] + NOP.to_bytes(16, "little")))
    assert compare(ORIGINAL, gone) != []


def test_opcodes_have_thirteen_bits() -> None:
    assert opcodes(from_ints([0x981 | 1 << 91, 0x918])).tolist() == [0x1981, 0x918]
