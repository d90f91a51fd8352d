"""Run a program of the tool chain."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from heddle.cost.tools import search_path


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a program in a folder and return its output. Raises RuntimeError with it if the program fails."""
    environment = {**os.environ, "PATH": search_path(), **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed in {folder}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
