"""Mappings of FIBER-native kernels that a search has found: a person's own, kept by `heddle tune`, and those shipped.

A mapping is what `heddle tune` searches: counts of fibers and stages, tile shapes and the like, as fields of a
configuration. `tuned.toml` holds the winners that come with Heddle, by kernel, architecture and kind of problem; a
search of the same question on this computer goes before them. A winner that cannot be built for a problem is not used.
`form = "own"` there: the ablation found the form that uses all features ahead, and no other is compared, which saves
time (`heddle.study.forms`); a search on this computer knows nothing of other forms, so all are compared again.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.study import store
from heddle.study.requests import Request
from heddle.study.tiles import pinned

TABLE = Path(__file__).parent / "tuned.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Fields of a configuration that a search found, and where they come from, as a sentence part for people.

    `form` "own": no other form of the kernel need be compared; else it is empty.
    """

    pins: Mapping[str, Any]
    origin: str
    form: str = ""


@functools.cache
def shipped() -> Sequence[Mapping[str, Any]]:
    """Return the shipped winners: `kernel`, `architecture`, `where` (parameters), `pins`, `found`, `form`."""
    rows: Sequence[Mapping[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mapping"]
    return rows


def winner(asked: Request) -> Winner | None:
    """Return the stored winner for a question of mode fiber in which nothing is pinned, None if there is none."""
    if asked.mode != "fiber" or asked.pins or asked.config is not None:
        return None
    own = store.load(_key(asked))
    if own is not None:
        return Winner(pins=own["pins"], origin=f"found on this computer by heddle tune {asked.kernel}")
    architecture = asked.machine.architecture
    if find_kernel(asked.kernel).native[architecture].lacks(asked.machine):  # another kernel runs instead
        return None
    for row in shipped():
        if (row["kernel"], row["architecture"]) == (asked.kernel, architecture) and _fits(row["where"], asked.params):
            origin = f"shipped, found by {row['found']}"
            return Winner(pins=row["pins"], origin=origin, form=row.get("form", ""))
    return None


def configuration(asked: Request, found: Winner) -> Any:
    """Return the kernel's own configuration changed to a winner's fields, None if it cannot be built."""
    from heddle import pipeline

    try:
        offered = find_kernel(asked.kernel).candidates(asked.machine, asked.params, asked.mode)
        config = pinned(offered, found.pins)[0]
        pipeline.tile_program(asked.kernel, asked.machine, asked.params, config, asked.mode)
    except UserError:
        return None
    return config


def keep(asked: Request, pins: Mapping[str, Any]) -> None:
    """Keep the winner of a search in the store, for questions about the same kernel, machine and parameters."""
    store.save(_key(asked), {"pins": dict(pins)})


def _key(asked: Request) -> str:
    """A changed kernel or engine asks for a new search: the source decides, too."""
    question = {"kernel": asked.kernel, "machine": asked.machine, "params": dict(asked.params), "mapping": True}
    return store.key_of(question, store.SEARCH_ROOMS)


def _fits(where: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    return all(params.get(name) == value for name, value in where.items())
