"""How the core is compiled: Numba with an on-disk cache that knows all of the core's sources, or not at all.

Numba's own cache looks only at the file of the compiled function, so a change in a file that it calls would go
unnoticed; here the directory of the cache is named after a hash of every file of the core. The cache lies beside the
package, or in the user's cache directory if that is not writable. With `HEDDLE_JIT=0` or `NUMBA_DISABLE_JIT=1` the same
source runs as plain Python, which is what `engine="python"` uses (see `heddle.sim.python_core`).
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

enabled = os.environ.get("HEDDLE_JIT", "1") != "0" and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""False while the core is imported as plain Python."""

cached = True
"""False while functions are compiled that belong in no cache."""


def source_hash() -> str:
    """Return a short hash of all source files of the core."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Return a writable directory for compiled code: beside this file, else in the user's cache directory."""
    beside = Path(__file__).parent / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        if os.access(beside, os.W_OK):
            return beside / f"core-{source_hash()}"
    except OSError:
        pass
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "heddle" / f"core-{source_hash()}"


_directory = cache_directory() if enabled else None


def compiled(function: F) -> F:
    """Compile a core function with Numba (cached on disk), or return it unchanged when compilation is off."""
    if not enabled:
        return function
    import numba

    config: Any = importlib.import_module("numba.core.config")

    previous = config.CACHE_DIR
    config.CACHE_DIR = str(_directory)
    try:
        return cast(F, numba.njit(cache=cached, nogil=True)(function))
    finally:
        config.CACHE_DIR = previous


def python_ctz(x: int) -> int:
    """Return the number of trailing zero bits of x, which is not 0."""
    return (x & -x).bit_length() - 1


def python_top(x: int) -> int:
    """Return the index of the highest set bit of x, which is positive."""
    return x.bit_length() - 1


def _intrinsics() -> tuple[Callable[[int], int], Callable[[int], int]]:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def ctz(typing_context: Any, x: Any) -> Any:
        """Trailing zero bits, one machine instruction."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            false = context.get_constant(types.boolean, False)
            return builder.cttz(arguments[0], false)

        return types.int64(types.int64), generate

    @intrinsic
    def top(typing_context: Any, x: Any) -> Any:
        """Index of the highest set bit, one machine instruction."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            false = context.get_constant(types.boolean, False)
            zeros = builder.ctlz(arguments[0], false)
            return builder.sub(context.get_constant(types.int64, 63), zeros)

        return types.int64(types.int64), generate

    return cast("tuple[Callable[[int], int], Callable[[int], int]]", (ctz, top))


ctz, top = _intrinsics() if enabled else (python_ctz, python_top)
