"""What happens to a command when outputs are full, closed, missing or the same, and when it is interrupted?"""

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from heddle.study import runs

from .conftest import Command
from .test_cli import RUN

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")


def ended(*arguments: str, out: int | Path = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with its standard output at `out`."""
    command = [sys.executable, "-m", "heddle", *arguments]
    if isinstance(out, Path):
        with out.open("w", encoding="utf-8") as file:
            return subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)


def test_the_version_is_that_of_the_distribution(heddle: Command) -> None:
    shown = heddle("--version")
    assert (shown.code, shown.out) == (0, f"heddle {version('heddle-gpu')}\n")


@needs_full
@pytest.mark.parametrize("arguments", [("machines",), ("machines", "h100", "--json", "-"), ("--help",)])
def test_a_full_standard_output_is_one_message_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    run = ended(*arguments, out=FULL)
    assert (run.returncode, run.stderr) == (2, "heddle: cannot write the output: No space left on device\n")


@needs_full
def test_a_full_file_is_one_message_and_stays_what_it_is(heddle: Command) -> None:
    run = heddle("machines", "--json", str(FULL))
    assert (run.code, run.err) == (2, "heddle: cannot write '/dev/full': No space left on device\n")
    assert FULL.is_char_device()


@pytest.mark.parametrize("arguments", [("machines", "h100"), ("machines", "h100", "--json", "-")])
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = ended(*arguments, out=writing)
    os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")


BAD_OUTPUTS = [
    (("machines", "--json", ""), "--json needs the name of a file"),
    ((*RUN, "--trace", " "), "--trace needs the name of a file"),
    ((*RUN, "--trace", "-"), "--trace writes a binary file, not to standard output"),
    ((*RUN, "--trace", "x", "--json", "./x"), "--json and --trace would both write 'x'"),
    (("compile", "gemm", "--gpu", "h100", "-o", "-", "--json", "-"), "--output and --json would both write '-'"),
    (("machines", "--json", "."), "cannot write '.': it is a folder"),
    (("machines", "--json", "absent/x.json"), "the folder "),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_OUTPUTS, ids=[" ".join(a) for a, _ in BAD_OUTPUTS])
def test_an_output_that_cannot_be_written_is_refused_before_work(
    heddle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = heddle(*arguments)
    assert (run.code, run.out, message in run.err) == (2, "", True)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_one_warning(
    heddle: Command, fake_pipeline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path / "file" / "cache"))
    run = heddle(*RUN)
    assert (run.code, "TFLOP/s" in run.out, run.err.count("\n")) == (0, True, 1)
    assert "heddle: warning: results are not kept: cannot write the folder" in run.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_so_and_writes_nothing(
    heddle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(runs, "_answer", lambda *_: signal.raise_signal(number))
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)  # background jobs inherit an ignored one
    run = heddle(*RUN, "--json", str(tmp_path / "r.json"), "--trace", str(tmp_path / "r.pftrace"))
    assert (run.code, run.out, run.err.strip().count("\n")) == (130, "", 0)
    assert "heddle: interrupted; what was finished is kept" in run.err
    assert signal.getsignal(number) is not signal.SIG_IGN
    assert list(tmp_path.iterdir()) == []
