"""Does the way from CUDA's source to a simulation work, command by command, as the page says?"""

import re
import shlex
import shutil
import subprocess
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest

from cubins import tool
from heddle.cli import main

pytest.importorskip("elftools", reason="reading cubins needs the extra sass")
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cuda_native.md"


def block(language: str) -> str:
    """Return the page's block of a language."""
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tool("nvcc")
    if shutil.which("gcc") is None:
        pytest.skip("nvcc needs gcc")
    monkeypatch.chdir(tmp_path)
    Path("scale.cu").write_text(block("cuda"))
    commands = re.split(r"^\$ ", block("text"), flags=re.MULTILINE)[1:]
    assert [text.split()[0] for text in commands] == ["nvcc", *["heddle"] * 4]
    for text in commands:
        command, _, want = text.partition("\n")
        name, *arguments = shlex.split(command)
        if name == "nvcc":
            subprocess.run([compiler, *arguments], check=True, capture_output=True)
            continue
        assert main(arguments) == 0
        got = capsys.readouterr().out
        assert OutputChecker().check_output(want, got, ELLIPSIS | NORMALIZE_WHITESPACE), got
