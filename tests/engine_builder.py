"""Small warp programs and machines for tests of the engine."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from heddle.ir.warp import Control, Count, Instruction, Register, Role, Source, WarpProgram, Work
from heddle.machine import Machine, machine
from heddle.sim import SimResult, Stall, simulate

R = Register


def op(name: str, *, stall: int = 1, wait: Sequence[int] = (), write: int | None = None, read: int | None = None,
       **fields: Any) -> Instruction:  # fmt: skip
    """Return an instruction with its control field."""
    control = Control(stall=stall, wait=frozenset(wait), write_barrier=write, read_barrier=read)
    return Instruction(op=name, control=control, **fields)


def loop(target: int, times: int, *, stall: int = 1, level: int = 0) -> Instruction:
    """Return a loop branch."""
    return op("LOOP", stall=stall, target=target, level=level, count=Count(value=times))


EXIT = Instruction(op="EXIT")


def role(entry: int, warps: int, *, first: int = 0, name: str = "worker", registers: int = 32, **fields: Any) -> Role:
    """Return a role."""
    return Role(name=name, first_warp=first, warps=warps, entry=entry, registers_per_thread=registers, **fields)


def program(*instructions: Instruction, roles: Sequence[Role] = (), warps: int = 1, items: Any = ((0,),),
            attributes: Sequence[str] = ("zero",), schedule: Any = "launch", grid: int = 1,
            **fields: Any) -> WarpProgram:  # fmt: skip
    """Return a program; without roles, of one role with `warps` warps. Source lines are 100 + pc of kernel.py."""
    rows = tuple(dataclasses.replace(instruction, source=pc) for pc, instruction in enumerate(instructions))
    work = Work(attributes=tuple(attributes), items=np.array(items, dtype=np.int64), schedule=schedule, grid=grid)
    return WarpProgram(
        name="test",
        architecture="sm_90",
        instructions=rows,
        roles=tuple(roles) or (role(0, warps),),
        work=work,
        sources=tuple(Source(file="kernel.py", line=100 + pc, operation=i.op) for pc, i in enumerate(rows)),
        **fields,
    )


def h100(**changes: Any) -> Machine:
    """Return the H100 with fields changed."""
    return dataclasses.replace(machine("h100"), **changes)


def run(p: WarpProgram, m: Machine | None = None, **options: Any) -> SimResult:
    """Simulate one SM without fast-forward, in plain Python unless told otherwise."""
    return simulate(p, m or h100(), **({"mode": "sm", "fast_forward": False} | options))


def issues(p: WarpProgram, m: Machine | None = None, warp: int = 0, **options: Any) -> list[int]:
    """Return the issue cycles of a warp of the first SM, in order."""
    log = run(p, m, log="issue", **options).log
    assert log is not None
    chosen = log[(log["warp"] == warp) & (log["sm"] == 0) & (log["slot"] == 0)]
    return [int(cycle) for cycle in chosen["begin"]]


def waited(result: SimResult, pc: int) -> dict[str, int]:
    """Return the cycles that warps waited at a pc, by reason."""
    return {reason.name: int(result.stalls_pc[pc, reason]) for reason in Stall if result.stalls_pc[pc, reason]}
