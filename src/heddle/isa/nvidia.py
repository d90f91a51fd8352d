"""NVIDIA's programs, where the extra `sass` has installed them: nvdisasm, cuobjdump and nvcc, run in their own
processes.

They come as packages `nvidia-cuda-*`, which share the namespace package `nvidia`; a CUDA toolkit on PATH is not used,
so that every machine judges by the same versions.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from heddle.errors import UserError

EXTRA_HINT = "pip install 'heddle-gpu[sass]'"
TIMEOUT_S = 600


@cache
def program(name: str) -> Path:
    """Return the path of one of NVIDIA's programs. Raises UserError where the extra is not installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob(f"cu[0-9]*/bin/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                return path
    raise UserError(f"NVIDIA's program {name} is not installed", hint=EXTRA_HINT)


def run_program(name: str, arguments: Sequence[str | Path], folder: Path | None = None) -> str:
    """Run one of NVIDIA's programs and return its standard output. Raises UserError with the program's own message."""
    command = [str(program(name)), *map(str, arguments)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"cannot run {name}: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise UserError(
            f"{name} refused {' '.join(map(str, arguments))}: {said[-2000:] or f'exit code {done.returncode}'}"
        )
    return done.stdout.decode("utf-8", "replace")
