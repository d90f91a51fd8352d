"""Small FIBER programs for tests: wefts as lists of instructions, bits at the start, and what happened in a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agreement import differences
from engine_builder import EXIT, op, program, role
from heddle.errors import UserError
from heddle.ir.warp import Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import OWN, Bind, FiberNote
from heddle.machine import Machine, OpTiming, machine
from heddle.sim import simulate
from heddle.sim.reference.chip import Chip
from heddle.sim.reference.engine import result_of, run_chip
from heddle.sim.reference.fiber_thread import Change
from heddle.sim.result import EventKind, Stall

LATENCY = 4  # of every instruction of `fiber_machine`
SETUP = 32  # cycles of a SETFIBER of `fiber_machine`: long enough for every bit of a prologue to be seen


@functools.cache
def _base() -> Machine:
    return machine("h100+fiber")


def fiber_machine(**changes: Any) -> Machine:
    """Return an H100 with FIBER, of one SM, on which every pipe takes one instruction a cycle and answers in four."""
    base = _base()
    ops = {name: OpTiming(pipe=t.pipe, initiation_cycles=1.0, latency_cycles=LATENCY) for name, t in base.ops.items()}
    defaults = {"set_fiber_num_cycles": SETUP, "l2_partitions": 1}
    return dataclasses.replace(base, sms=1, ops=ops, **(defaults | changes))


def at(number: int, place: int = OWN, count: int = 1) -> Register:
    """Return a register of a subpartition, by default the weft's own."""
    return Register(number, count, False, place)


def bind(
    *consume: int, hold: bool = False, readers: Sequence[int] = (), scoped: bool | Sequence[int] = ()
) -> Instruction:
    """Return a DEPBAR.BIND; `scoped`: the scoped slots, True for all consumed ones."""
    slots = consume if scoped is True else tuple(scoped or ())
    return op("DEPBAR.BIND", bind=Bind(consume=consume, hold=hold, readers=tuple(readers), scoped=slots))


def bit(which: Any, register: Register, value: bool) -> Instruction:
    """Return a DEPBAR.BIT."""
    return op("DEPBAR.BIT", bit=which, set_bit=value, src=(register,))


def nops(count: int) -> list[Instruction]:
    """Return instructions that only pass time: one cycle each."""
    return [op("NOP")] * count


POOL = 16  # a register of the pool, in subpartition 0 unless said otherwise
READ = 2  # cycles from an issue to the consumption of its operands
L = 1  # busy_bit_broadcast_cycles of the machine


def write(number: int = POOL) -> Instruction:
    """Write a register of the weft's own subpartition."""
    return op("MOV", dst=at(number))


def read(register: Register | None = None, to: int = 1) -> Instruction:
    """Read a register, by default of subpartition 0, into a private one."""
    return op("FADD", dst=at(to), src=(register or at(POOL, 0),))


EMPTY = [bit("empty", at(POOL), True)]
HELD = [bit("full", at(POOL), True)]


def fiber_program(
    code: Mapping[int, Sequence[Instruction]],
    *,
    prologue: Sequence[Instruction] = (),
    registers: int = 64,
    **fields: Any,
) -> WarpProgram:
    """Return a program whose weft w runs `code[w]` after a SETFIBER that weft 0 reaches after `prologue`.

    Wefts that `code` does not name end at once. All start in the same cycle. Registers 0 to 15 are private, the others
    the pool.
    """
    wefts = max(code) + 1
    instructions: list[Instruction] = [*prologue, op("SETFIBER", fibers=32 * wefts)]
    roles = []
    for weft in range(wefts):
        entry = 0 if weft == 0 else len(instructions)
        roles.append(role(entry, 1, first=weft, name=f"weft{weft}"))
        instructions += [*code.get(weft, ()), EXIT]
    note = FiberNote(registers=registers, pool_first=16, pool_limit=registers)
    return program(*instructions, roles=roles, mode="fiber", fiber=note, **fields)


def run_fiber(p: WarpProgram, m: Machine | None = None, scheduler: Any = "gty") -> Chip:
    """Run a program on one SM; return the reference engine's chip with everything that it counted.

    The compiled engine runs it, too, and must agree, so that every golden test holds for both.
    """
    m = m or fiber_machine()
    options: dict[str, Any] = {"mode": "sm", "l2_state": "cold", "clock_mhz": 1000.0, "scheduler": scheduler}
    try:
        chip = run_chip(p, m, "sm", "cold", 1000.0, scheduler, log=True)
    except UserError:
        with pytest.raises(UserError):
            simulate(p, m, **options)
        raise
    assert not differences(result_of(chip, 1000.0), simulate(p, m, **options))
    return chip


def issued(chip: Chip, weft: int) -> list[int]:
    """Return the issue cycles of a weft after the start of all, counted from there."""
    log = chip.log.array()
    assert log is not None
    issues, start = log[log["kind"] == EventKind.ISSUE], _start(chip)
    return [int(row["begin"]) - start for row in issues if row["warp"] == weft and row["begin"] >= start]


def _start(chip: Chip) -> int:
    """Return the cycle in which all wefts start after the first SETFIBER."""
    log = chip.log.array()
    assert log is not None
    issues = log[log["kind"] == EventKind.ISSUE]
    meeting = min(int(row["begin"]) for row in issues if chip.program.instructions[row["pc"]].op == "SETFIBER")
    return meeting - 1 + chip.machine.set_fiber_num_cycles


def trace(chip: Chip) -> list[Change]:
    """Return what happened to registers, in the order in which it took effect."""
    changes = [change for thread in chip.traces for change in thread]
    late = ("issue", "bit")  # what issues in a cycle comes after what completes in it
    return sorted(changes, key=lambda change: (change.cycle, change.kind in late))


def states(chip: Chip, weft: int) -> dict[str, int]:
    """Return the cycles of a weft by state."""
    counts = chip.stalls[(next(iter(chip.sms)), weft)]
    return {reason.name: int(counts[reason]) for reason in Stall if counts[reason]}


def spans(chip: Chip, kind: EventKind) -> list[tuple[int, int, int]]:
    """Return weft, begin and end of the records of a kind, counted as `issued` does."""
    log = chip.log.array()
    assert log is not None
    start = _start(chip)
    return [(int(r["warp"]), int(r["begin"]) - start, int(r["end"]) - start) for r in log[log["kind"] == kind]]
