"""Does the reader find what a cubin holds, and say what is wrong with bytes that are none?"""

import struct

import pytest

from cubins import small_cubin
from heddle.errors import UserError
from heddle.isa.cubin import attributes
from heddle.isa.cubin.cubin import parse_cubin
from heddle.isa.cubin.layout import write_elf
from heddle.isa.cubin.lines import line_of_instructions
from heddle.isa.cubin.resources import resources


def test_kernels_and_functions_are_found() -> None:
    cubin = parse_cubin(small_cubin())
    assert [(f.name, f.start, f.size, f.entry) for f in cubin.functions] == [
        ("k", 0, 80, True),
        ("inner", 80, 48, False),
    ]
    assert (cubin.sm, cubin.architecture) == (90, "sm_90")


def test_resources_come_from_attributes_and_sections() -> None:
    cubin = parse_cubin(small_cubin())
    needs = resources(cubin, cubin.kernel("k"))
    assert (needs.registers, needs.static_shared_bytes, needs.max_threads, needs.instructions) == (24, 64, 128, 5)


def test_lines_are_those_of_the_table() -> None:
    lines = line_of_instructions(parse_cubin(small_cubin()), 6, 8)
    assert [line.line if line else None for line in lines] == [10, 11, 11, 11, 11, 16, 16, 16]


def test_writing_what_was_read_gives_the_same_file() -> None:
    data = small_cubin()
    elf = parse_cubin(data).elf
    assert write_elf(elf, elf) == data


def test_attributes_are_built_as_they_were_parsed() -> None:
    data = parse_cubin(small_cubin()).elf.sections[5].data
    assert attributes.build(attributes.parse(data, "info")) == data


def test_targets_of_indirect_branches_are_offsets() -> None:
    one = attributes.Attribute(4, attributes.INDIRECT_BRANCHES, struct.pack("<6I", 0x40, 0, 3, 0x10, 0x20, 0x30))
    assert attributes.moved(one, lambda at: at + 16).numbers() == (0x50, 0, 3, 0x20, 0x30, 0x40)


def test_an_unknown_attribute_is_not_moved_silently() -> None:
    with pytest.raises(UserError, match="0x7e of the kernel is not known"):
        attributes.moved(attributes.Attribute(4, 0x7E, bytes(8)), lambda at: at)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"MZ", "does not begin with the header"),
        (4, b"\x01", "64 bits"),
        (7, b"\x00", "ABI 0x0"),
        (18, b"\x3e\x00", "EM_X86_64, not of CUDA"),
        (40, b"\xff\xff\xff\xff", "do not fit"),
        (58, b"\x20\x00", "headers of sections have 32 bytes"),
        (62, b"\xff\xff", "is to hold the names"),
    ],
)
def test_damage_of_the_header_is_named(at: int, value: bytes, message: str) -> None:
    data = bytearray(small_cubin())
    data[at : at + len(value)] = value
    with pytest.raises(UserError, match=message):
        parse_cubin(bytes(data))


def test_a_file_cut_short_is_refused_at_every_length() -> None:
    data = small_cubin()
    for length in range(0, len(data), 7):
        with pytest.raises(UserError):
            parse_cubin(data[:length])


def test_an_unknown_kernel_is_answered_with_those_there_are() -> None:
    with pytest.raises(UserError, match="allowed: k"):
        parse_cubin(small_cubin()).kernel("kk")
