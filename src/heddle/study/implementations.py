"""What is publicly known of the kernel behind a measured family, and of the script that measured it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "implementations.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """Fixed fields of the tile configuration of a family's kernel, its list of tiles, and where that is known from.

    `l2_state`: how the measuring script leaves L2 between two runs, where that is known better than the cases say.
    `rested`: whether the chip was idle before a timed run; without it, whether L2 was not warm. `chip_keys`:
    attention with at most so many keys is simulated on the whole chip: there one SM does not stand for all.
    `includes_launch`: whether the script's times include launches, where that is known better than the cases say.
    `extra_launches`: kernels of next to no work that the script's loop launches besides, each timed as an empty kernel.
    """

    pins: Mapping[str, Any] = field(default_factory=dict)
    library: str = ""
    l2_state: str = ""
    rested: bool | None = None
    chip_keys: int = 0
    includes_launch: bool | None = None
    extra_launches: int = 0
    why: str = ""


@functools.cache
def implementations() -> Mapping[str, Implementation]:
    """Return what is known, by family of cases."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {family: Implementation(**entry) for family, entry in table.items()}


def implementation(family: str) -> Implementation:
    """Return what is known of a family; nothing is fixed for the others."""
    return implementations().get(family, Implementation())
