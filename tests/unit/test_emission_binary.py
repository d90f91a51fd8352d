"""Is a compiled kernel's file a cubin that says the whole program, and is damage found?"""

from pathlib import Path

import pytest

from emission_programs import by_hand, compiled
from heddle.errors import UserError
from heddle.isa.emission.binary import compiled_program, cubin_bytes, fiber_kernel
from heddle.isa.emission.container import FLAGS, kernel_file, note_record, note_text
from heddle.isa.words import from_ints

pytest.importorskip("elftools", reason="reading cubins needs the extra sass")
PLAIN = "[B------:R-:W-:S01]"


def parsed(data: bytes):  # type: ignore[no-untyped-def]
    """Return the cubin of these bytes."""
    from heddle.isa.cubin.cubin import parse_cubin

    return parse_cubin(data)


@pytest.mark.parametrize(("kernel", "gpu", "mode"), [("rmsnorm", "a100", "simt"), ("rmsnorm", "b200", "fiber")])
def test_the_file_says_the_whole_program(kernel: str, gpu: str, mode: str) -> None:
    program = compiled(kernel, gpu, mode)
    assert compiled_program(parsed(cubin_bytes(program))) == program


@pytest.mark.parametrize("architecture", FLAGS)
def test_the_file_states_its_architecture(architecture: str) -> None:
    assert parsed(cubin_bytes(by_hand(f"{PLAIN} NOP", architecture=architecture))).architecture == architecture


def test_the_fiber_note_has_pool_and_roles() -> None:
    kernel = fiber_kernel(by_hand(f"{PLAIN} NOP", "fiber"))
    assert kernel is not None
    assert (kernel.pool_start, kernel.pool_end, kernel.registers) == (32, 300, 400)
    assert [(role.first, role.last, role.base, role.entry) for role in kernel.roles] == [(0, 3, 0, 0), (4, 7, 256, 32)]


def test_a_program_of_mode_simt_has_no_fiber_note() -> None:
    assert parsed(cubin_bytes(by_hand(f"{PLAIN} NOP"))).elf.named(".note.fiber") is None


def test_padding_is_no_part_of_the_kernel() -> None:
    cubin = parsed(cubin_bytes(by_hand(f"{PLAIN} NOP")))
    (kernel,) = cubin.kernels
    assert (kernel.size, len(cubin.elf.sections[kernel.section].data)) == (32, 128)


def test_another_cubin_has_no_program() -> None:
    data = kernel_file("k", "sm_80", from_ints([0x7918]), 8, "").replace(
        b".note.heddle.program", b".note.heddle.another"
    )
    with pytest.raises(UserError, match="no note of a compiled kernel"):
        compiled_program(parsed(data))


def test_a_fiber_note_that_does_not_fit_is_refused() -> None:
    data = bytearray(cubin_bytes(by_hand(f"{PLAIN} NOP", "fiber")))
    at = data.index(b"FIBER\0") + 8 + 12
    assert data[at : at + 2] == (32).to_bytes(2, "little")
    data[at] = 33
    with pytest.raises(UserError, match="FIBER note"):
        compiled_program(parsed(bytes(data)))


@pytest.mark.parametrize("data", [b"", bytes(11), note_record(b"text")[:-4], note_record(b"text", kind=9)])
def test_a_note_that_is_cut_off_has_no_text(data: bytes) -> None:
    assert note_text(data) is None


def test_a_note_is_found_behind_another() -> None:
    assert note_text(note_record(b"other", kind=9) + note_record(b"text")) == b"text"


def test_compile_writes_a_cubin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heddle.cli import main

    path = tmp_path / "k.cubin"
    main(["compile", "rmsnorm", "--gpu", "a100", "--set", "rows=64", "--set", "hidden=512", "-o", str(path)])
    assert compiled_program(parsed(path.read_bytes())).name == "rmsnorm"
