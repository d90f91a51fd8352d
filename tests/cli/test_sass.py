"""Do the commands of `heddle sass` read, check and write cubins, and answer bad input in one message?"""

import json
from pathlib import Path

import pytest

from cubins import EXIT, NOP, small_cubin
from heddle.cli import main

UNKNOWN = 0x000FE20000000000_000000040500701F  # opcode 0x01f: no architecture has it


@pytest.fixture
def cubin(tmp_path: Path) -> Path:
    """Write the small cubin to a file."""
    path = tmp_path / "k.cubin"
    path.write_bytes(small_cubin())
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Run a command with --json and return its data."""
    assert main(["sass", *arguments, "--json", "-"]) == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


def test_patch_writes_a_cubin_that_check_accepts(cubin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = cubin.with_name("patched.cubin")
    assert answer(capsys, "patch", str(cubin), "-o", str(out))["fibers"] == {"k": 128}
    assert answer(capsys, "check", str(out), "--original", str(cubin))["differences"] == []


def test_check_fails_on_damage(cubin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = cubin.with_name("patched.cubin")
    assert main(["sass", "patch", str(cubin), "-o", str(out)]) == 0
    data = bytearray(out.read_bytes())
    data[data.index(b"\x79\x19") if b"\x79\x19" in data else data.index(b"\x18\x79") + 5] ^= 1
    out.write_bytes(bytes(data))
    assert main(["sass", "check", str(out), "--original", str(cubin)]) == 1
    assert "became" in capsys.readouterr().out


def test_show_has_resources_controls_and_lines(cubin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "show", str(cubin), "--kernel", "k")
    (kernel,) = data["kernels"]  # type: ignore[misc]
    assert kernel["resources"]["registers"] == 24
    first = kernel["instructions"][0]
    assert (first["offset"], first["control"], first["line"]) == (0, "[B------:R-:W-:-:S01]", "k.cu:10")


def test_show_prints_texts_and_counts_unknown_opcodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(small_cubin([0x000FE20000000000_00000004050C7221, UNKNOWN, EXIT, *[NOP] * 4]))
    (kernel,) = answer(capsys, "show", str(path))["kernels"]  # type: ignore[misc]
    texts = [one["text"] for one in kernel["instructions"]]
    assert (kernel["raw"], texts) == (1, ["FADD R12, R5, R4", f".word 0x{UNKNOWN:032x}", "EXIT"])
    assert kernel["instructions"][1]["live"] == kernel["resources"]["registers"]


def test_summary_counts_every_instruction(cubin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = answer(capsys, "check", "--summary", str(cubin.parent))["summary"]  # type: ignore[misc]
    assert row["architecture"] == "sm_90"
    assert row["instructions"] == 8 == sum(row["verdicts"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "missing.cubin"], "cannot read 'missing.cubin'"),
        (["check"], "give either a cubin or --summary DIR"),
        (["check", "--summary", "missing"], "is no folder"),
        (["show", "{cubin}", "--kernel", "kk"], "unknown kernel 'kk'"),
        (["patch", "{cubin}", "-o", "{cubin}/x"], "does not exist"),
        (["check", "{cubin}", "--summary", "{cubin}"], "either a cubin or --summary"),
    ],
)
def test_bad_use_is_one_message(
    arguments: list[str], message: str, cubin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sass", *(argument.format(cubin=cubin) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_a_library_is_no_cubin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    path.write_text("no ELF file, but long enough to be read as one, which has 64 bytes of header")
    assert main(["sass", "show", str(path)]) == 2
    assert "does not begin with the header of an ELF file" in capsys.readouterr().err
