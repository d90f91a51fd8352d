"""Is the documentation true? Links lead somewhere, and every example runs and prints what the page says."""

import os
import re
import shlex
import subprocess
import sys
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest
from sybil import Example
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OPTIONS = ELLIPSIS | NORMALIZE_WHITESPACE


def run_console(example: Example) -> str | None:
    """Run the `$` lines of a console block in its own folder; compare the output, `...` standing for anything."""
    folder = example.namespace.setdefault("__folder__", example.namespace["__make_folder__"]())
    commands = re.split(r"^\$ ", str(example.parsed), flags=re.MULTILINE)[1:]
    for text in commands:
        command, _, want = text.partition("\n")
        arguments = shlex.split(command)
        if arguments[0] != "heddle":
            return f"only heddle commands are run, not {command!r}; use a `text` block"
        run = subprocess.run(
            [sys.executable, "-m", "heddle", *arguments[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "160"},
        )
        got = run.stdout + run.stderr
        if not OutputChecker().check_output(want, got, OPTIONS):
            return f"$ {command}\nexpected:\n{want}\ngot:\n{got}"
    return None


PARSERS = [SkipParser(), PythonCodeBlockParser(doctest_optionflags=OPTIONS), CodeBlockParser("console", run_console)]


def identifier(path: Path) -> str:
    """Return the path below the root, for test names."""
    return str(path.relative_to(ROOT))


def anchor(heading: str) -> str:
    """Return the anchor that Git hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {anchor(line.lstrip("#")) for line in text.splitlines() if line.startswith("#")}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, part = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (part and file.suffix == ".md" and part not in anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here\n[a](missing.md) [b](#here) [c](#there)\n", encoding="utf-8")
    assert broken_links(page) == ["missing.md", "#there"]


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_examples_run_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = Document.parse(str(page), *PARSERS)
    document.namespace["__make_folder__"] = lambda: tmp_path
    for example in document.examples():
        example.evaluate()


def test_every_docs_page_is_listed_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {
        (index.parent / target.partition("#")[0]).resolve()
        for target in LINK.findall(index.read_text(encoding="utf-8"))
    }
    assert [
        identifier(page) for page in sorted((ROOT / "docs").rglob("*.md")) if page != index and page not in listed
    ] == []
