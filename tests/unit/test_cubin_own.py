"""Do real cubins, compiled from our own sources, stay the same programs when they are patched? NVIDIA's tools judge."""

import pytest

from cubins import KERNELS, own_cubin, tool
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import parse_cubin, read_cubin
from heddle.isa.cubin.judge import judge
from heddle.isa.cubin.layout import write_elf
from heddle.isa.cubin.listing import disassemble
from heddle.isa.cubin.patch import patch_entry
from heddle.isa.cubin.resources import resources
from heddle.isa.nvidia import run_program
from heddle.isa.words import to_ints

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "architecture"), KERNELS)
def test_nothing_but_the_inserted_instruction_differs(name: str, architecture: str) -> None:
    original = read_cubin(own_cubin(name, architecture))
    patched = parse_cubin(patch_entry(original, 128).data)
    assert compare(original, patched) == []
    verdict = judge(original, patched)
    assert verdict.differences == []
    assert verdict.instructions > 300
    assert verdict.references > 5
    assert verdict.lines > 250


@pytest.mark.parametrize(("name", "architecture"), KERNELS)
def test_the_words_are_those_that_nvidia_lists(name: str, architecture: str) -> None:
    path = own_cubin(name, architecture)
    cubin, listed = read_cubin(path), disassemble(path.read_bytes())
    for index, section in cubin.texts.items():
        words = to_ints(cubin.words(index))
        assert words == [low | high << 64 for low, high in listed[section.name].words]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_resources_are_those_that_nvidia_reports(architecture: str) -> None:
    tool("cuobjdump")
    path = own_cubin("memory", architecture)
    cubin, text = read_cubin(path), run_program("cuobjdump", ["-res-usage", path])
    for kernel in cubin.kernels:
        needs = resources(cubin, kernel)
        line = text.split(f"Function {kernel.name}:")[1].splitlines()[1]
        assert line.split()[:3] == [
            f"REG:{needs.registers}",
            f"STACK:{needs.stack_bytes}",
            f"SHARED:{needs.static_shared_bytes}",
        ]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_a_file_written_again_is_read_by_nvidia_as_before(architecture: str) -> None:
    path = own_cubin("control", architecture)
    cubin = read_cubin(path)
    assert disassemble(write_elf(cubin.elf, cubin.elf)) == disassemble(path.read_bytes())
