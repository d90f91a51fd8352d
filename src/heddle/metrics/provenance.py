"""Where a result came from: versions and content hashes of the machine and the program."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from enum import Enum
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine

_HASH_DIGITS = 16


def heddle_version() -> str:
    """Return the installed version of Heddle."""
    try:
        return version("heddle-gpu")
    except PackageNotFoundError:
        return "unknown"


def machine_hash(machine: Machine) -> str:
    """Return a content hash of all values of a machine; provenance texts do not count."""
    return _digest(machine.as_dict())


def program_hash(program: WarpProgram) -> str:
    """Return a content hash of everything that can change a simulation or its explanation, file names excluded."""
    fields = {f.name: getattr(program, f.name) for f in dataclasses.fields(program) if f.name != "sources"}
    return _digest(fields)


def _digest(value: object) -> str:
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()[:_HASH_DIGITS]


def _feed(digest: hashlib._Hash, value: object) -> None:
    """Feed a canonical form: mappings and sets sorted, dataclasses by field, arrays by shape, type and bytes."""
    if isinstance(value, np.ndarray):
        digest.update(f"a{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        _feed_parts(digest, "m", [part for key in sorted(value) for part in (key, value[key])])
    elif isinstance(value, frozenset | set):
        _feed_parts(digest, "s", sorted(value))
    elif isinstance(value, tuple | list):
        _feed_parts(digest, "t", list(value))
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, f.name) for f in dataclasses.fields(value) if f.compare]
        _feed_parts(digest, type(value).__name__, parts)
    else:
        digest.update(f"{value.value if isinstance(value, Enum) else value!r};".encode())


def _feed_parts(digest: hashlib._Hash, tag: str, parts: list[object]) -> None:
    digest.update(f"{tag}{len(parts)}(".encode())
    for part in parts:
        _feed(digest, part)
    digest.update(b")")
