"""Run Yosys on the units."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from heddle.cost.run import run
from heddle.cost.tools import YOSYS, need


def read(
    sources: Iterable[Path], folder: Path, module: str, parameters: Mapping[str, int], defines: Iterable[str] = ()
) -> str:
    """Return the commands that read a module with parameters; its sources are copied into the folder.

    Yosys as WebAssembly sees the folder that it runs in, but not every other one.
    """
    names = []
    for path in sources:
        if path.parent != folder:
            shutil.copy(path, folder / path.name)
        names.append(path.name)
    given = "".join(f" -chparam {name} {value}" for name, value in parameters.items())
    flags = "".join(f" -D{name}" for name in defines)
    return f"read_verilog -sv{flags} {' '.join(names)}; hierarchy -check -top {module}{given}"


def yosys(commands: str, folder: Path, purpose: str) -> str:
    """Run commands in a folder and return what Yosys says. Raises UserError where it is missing, RuntimeError."""
    need([YOSYS], purpose)
    return run([YOSYS, "-q", "-Q", "-T", "-p", commands], folder)
