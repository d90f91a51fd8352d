"""Build small warp programs, and time them with the engine, for the micro suite.

A probe times straight-line code of two lengths and takes the difference, so that launch, first fill and drain cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from heddle import sim
from heddle.ir.warp import (
    Barrier,
    Control,
    Instruction,
    Register,
    Ring,
    Role,
    Source,
    Stream,
    Tensor,
    WarpProgram,
    Work,
)
from heddle.machine import Machine

MAX_STALL = 15  # of a control field
SHORT, LONG = 48, 144  # lengths of the two runs of a difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything of a program but its instructions."""

    warps: int = 1
    registers: int = 64
    rings: tuple[Ring, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    streams: tuple[Stream, ...] = ()
    attributes: tuple[str, ...] = ("base",)
    items: Sequence[Sequence[int]] = ((0,),)
    shared_memory_bytes: int = 0
    tensor_memory_columns: int = 0
    cluster_size: int = 1
    leader_only: bool = False
    schedule: Literal["static", "launch"] = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a probe is run: machine, clock and how much of the chip is simulated."""

    machine: Machine
    clock_mhz: float
    mode: Literal["sm", "chip"] = "sm"
    l2_state: Literal["warm", "cold"] = "warm"


def program(machine: Machine, body: Sequence[Instruction], setup: Setup) -> WarpProgram:
    """Return a program of one role that runs `body` and ends; work items are spread over the chip, one a cluster."""
    return WarpProgram(
        name="micro",
        architecture=machine.architecture,
        instructions=(*body, Instruction(op="EXIT")),
        roles=(
            Role(
                name="probe",
                first_warp=0,
                warps=setup.warps,
                entry=0,
                registers_per_thread=setup.registers,
                leader_only=setup.leader_only,
            ),
        ),
        rings=setup.rings,
        barriers=setup.barriers,
        tensors=setup.tensors,
        streams=setup.streams,
        work=Work(
            attributes=setup.attributes,
            items=np.asarray(setup.items, dtype=np.int64),
            schedule=setup.schedule,
            grid=len(setup.items),
        ),
        sources=(Source(file="micro", line=1, operation="probe"),),
        shared_memory_bytes=setup.shared_memory_bytes,
        tensor_memory_columns=setup.tensor_memory_columns,
        cluster_size=setup.cluster_size,
    )


def cycles(condition: Condition, body: Sequence[Instruction], setup: Setup) -> int:
    """Return the simulated cycles of a body."""
    result = sim.simulate(
        program(condition.machine, body, setup),
        condition.machine,
        mode=condition.mode,
        clock_mhz=condition.clock_mhz,
        l2_state=condition.l2_state,
    )
    return int(result.cycles)


def cycles_each(
    condition: Condition,
    body: Callable[[int], Sequence[Instruction]],
    setup: Setup,
    lengths: tuple[int, int] = (SHORT, LONG),
) -> float:
    """Return the cycles of one further step of `body(steps)`, from the difference of two lengths."""
    short, long = lengths
    return (cycles(condition, body(long), setup) - cycles(condition, body(short), setup)) / (long - short)


def waiting(*counters: int, stall: int = 1, write: int | None = None, read: int | None = None) -> Control:
    """Return a control field that waits for dependence counters and sets others."""
    return Control(stall=stall, wait=frozenset(counters), write_barrier=write, read_barrier=read)


def registers(*indices: int, reuse: int = -1) -> tuple[Register, ...]:
    """Return single source registers; slot `reuse` has its reuse bit set."""
    return tuple(Register(index, reuse=slot == reuse) for slot, index in enumerate(indices))
