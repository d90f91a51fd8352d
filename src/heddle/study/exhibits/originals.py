"""Lines of code of the public kernels, counted once in their repositories and cited: no simulation reads them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "originals.toml"


def originals() -> dict[str, Any]:
    """Return `repository`, `commit`, `rule` and the `kernels`: kernel, generation, files, code lines."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))
