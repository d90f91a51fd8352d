"""Do imports point one way? The order is that of docs/explanation/architecture.md; `make lint` checks it with import-
linter.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "heddle"
ORDER = [
    {"errors"},
    {"files"},
    {"ir", "machine"},
    {"isa", "lang"},
    {"passes"},
    {"frontends"},
    {"sim", "interp"},
    {"kernels", "metrics", "trace", "cost"},
    {"pipeline"},
    {"study"},
    {"report"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
ONLY_KERNELS_KNOW_LANG = {"passes", "frontends", "sim", "interp", "metrics", "trace"}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name == "pipeline.py")


def imported_rooms(source: str) -> set[str]:
    """Return the rooms of heddle that a module imports anywhere, inside functions too."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        parts = [name.split(".") for name in names]
        rooms |= {part[1] for part in parts if part[0] == "heddle" and len(part) > 1 and part[1] in RANK}
    return rooms


def violations(room: str, imported: set[str]) -> list[str]:
    """Return the rooms that `room` must not import."""
    if room == "lang":
        return sorted(imported - {"lang", "ir", "errors"})
    up = {other for other in imported if RANK[other] > RANK[room]}
    return sorted(up | ({"lang"} & imported if room in ONLY_KERNELS_KNOW_LANG else set()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_lies_before_it(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert violations(room, imported_rooms(path.read_text(encoding="utf-8"))) == []


def test_an_upward_import_is_found() -> None:
    assert violations("sim", imported_rooms("from heddle.study import store")) == ["study"]


def test_lang_may_not_see_a_machine() -> None:
    assert violations("lang", imported_rooms("import heddle.machine.spec")) == ["machine"]


def test_every_package_has_a_place_in_the_order() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= set(RANK)
