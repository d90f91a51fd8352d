"""A small FIBER-native GEMM for tests: compiled, run, checked with numbers, and mutated."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from heddle import sim
from heddle.interp.check import CheckReport, check
from heddle.ir.tile import TileProgram
from heddle.ir.warp import Instruction, WarpProgram
from heddle.ir.warp_fiber import Bind
from heddle.kernels.gemm.sm90_fiber import gemm_sm90_fiber
from heddle.kernels.gemm.sm90_fiber_shape import FiberGemm
from heddle.machine import Machine, machine
from heddle.passes import compile_program
from heddle.sim.result import SimResult

SMALL = FiberGemm(m=256, n=64, k=192, tile_n=64, stages=2)


@functools.cache
def one_sm() -> Machine:
    """Return an H100 with FIBER, of one SM."""
    return machine("h100+fiber").replace(sms=1)


@functools.cache
def tiles(problem: FiberGemm = SMALL) -> TileProgram:
    """Return the kernel as tiles."""
    return gemm_sm90_fiber.build("sm_90", problem)


@functools.cache
def compiled(problem: FiberGemm = SMALL) -> WarpProgram:
    """Return the kernel, compiled."""
    return compile_program(tiles(problem), one_sm())


def run(program: WarpProgram, engine: str = "compiled") -> SimResult:
    """Run a program with the log of every cycle."""
    return sim.simulate(program, one_sm(), mode="chip", engine=engine, log="all", fast_forward=False)


def checked(program: WarpProgram, problem: FiberGemm = SMALL) -> CheckReport:
    """Run a program with random numbers and compare with float64."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((problem.m, problem.k)), rng.standard_normal((problem.n, problem.k))
    return check(program, one_sm(), {"A": a, "B": b}, {"C": a @ b.T}, result=run(program))


def without(program: WarpProgram, pc: int, bind: Bind | None) -> WarpProgram:
    """Return the program with another bind at `pc`, or none (a NOP)."""
    old = program.instructions[pc]
    new = dataclasses.replace(old, bind=bind) if bind else Instruction(op="NOP", source=old.source)
    instructions = (*program.instructions[:pc], new, *program.instructions[pc + 1 :])
    return dataclasses.replace(program, instructions=instructions)


def bind_mutants(program: WarpProgram) -> Iterator[tuple[str, WarpProgram]]:
    """Yield the program without one hold, and without one consumed slot, for each that it has."""
    for pc, instruction in enumerate(program.instructions):
        bind = instruction.bind
        if bind is None:
            continue
        if bind.hold:
            left = dataclasses.replace(bind, hold=False) if bind.consume else None
            yield f"no hold at {pc}", without(program, pc, left)
        for slot in bind.consume:
            slots = tuple(s for s in bind.consume if s != slot)
            left = dataclasses.replace(bind, consume=slots) if slots or bind.hold else None
            yield f"no consume of slot {slot} at {pc}", without(program, pc, left)
