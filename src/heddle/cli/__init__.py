"""The command line: one file a sub-command, heavy imports inside commands so that `heddle --help` is quick."""

from heddle.cli.app import main

__all__ = ["main"]
