"""The command line: one file a sub-command, heavy imports inside commands so that `heddle --help` is quick."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from heddle.cli.app import main as run
    except KeyboardInterrupt:  # while the modules of the command line are loaded
        print("heddle: interrupted", file=sys.stderr)
        return 130
    return run(arguments)
