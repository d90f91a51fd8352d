"""Passes: from a tile program to a warp program, one pass a file, in the order of `manager.PASSES`."""

from __future__ import annotations

from heddle.ir.tile import TileProgram
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.passes.manager import PASSES, run_passes


def compile_program(program: TileProgram, machine: Machine) -> WarpProgram:
    """Lower a tile program for a machine. Raises UserError where the kernel does not fit it."""
    return run_passes(program, machine)


__all__ = ["PASSES", "compile_program", "run_passes"]
