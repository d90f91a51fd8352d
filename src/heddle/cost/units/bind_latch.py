"""The bind latch of a subpartition against the simulator's BIND."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from heddle.cost.trace import Trace, Unit
from heddle.ir.warp import Instruction
from heddle.ir.warp_fiber import B_SLOT, BIND_SLOTS, Bind
from heddle.machine.spec import Machine
from heddle.sim.reference.bit_units import BindUnit
from heddle.sim.reference.warp import Warp

BIND, DROP = 0.4, 0.1  # how often an issue is a BIND, and a weft ends


class BoundWeft(Warp):
    """A weft without an engine: what a BIND has bound to it is all that it has."""

    def __init__(self) -> None:
        self.bound, self.operation = None, None


def bits_of_bind(bind: Bind | None) -> int:
    """Return bits 102:92 of the instruction; without a BIND none is set."""
    if bind is None:
        return 0
    only_b = bind.scoped == (B_SLOT,) and bind.consume != bind.scoped
    word = sum(1 << slot for slot in bind.consume) | bind.hold << BIND_SLOTS
    word |= sum(1 << reader for reader in bind.readers) << BIND_SLOTS + 1
    return word | bool(bind.scoped) << 9 | only_b << 10


def random_bind(random: Random) -> Bind:
    """Return one of all that an instruction can say."""
    consume = tuple(slot for slot in range(BIND_SLOTS) if random.random() < 0.4)
    scopes = [(), consume] + ([(B_SLOT,)] if B_SLOT in consume else [])
    hold = random.random() < 0.5
    readers = tuple(part for part in range(4) if random.random() < 0.3) if hold else ()
    return Bind(consume=consume, hold=hold, readers=readers, scoped=random.choice(scopes))


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Issue random instructions of random wefts."""
    trace, wefts = Trace(), [BoundWeft() for _ in range(machine.max_wefts_per_subpartition)]
    chip = SimpleNamespace(timing=lambda instruction: machine.op_timing(instruction.op))
    unit = BindUnit(cast(Any, SimpleNamespace(machine=machine, chip=chip)))
    for cycle in range(cycles):
        issue, number, is_bind = random.random() < 0.8, random.randrange(len(wefts)), random.random() < BIND
        bind = random_bind(random)
        trace.give(issue=issue, context_number=number, is_bind=is_bind, bind_bits=bits_of_bind(bind))
        trace.expect(bound=bits_of_bind(wefts[number].bound))
        if issue:
            wefts[number].take_bound()
            if is_bind:
                unit.issue(wefts[number], Instruction(op="DEPBAR.BIND", bind=bind), cycle, 0)
        drop = random.randrange(len(wefts)) if random.random() < DROP else None
        trace.give(drop=0 if drop is None else 1 << drop)
        if drop is not None:
            wefts[drop] = BoundWeft()
    return trace


UNIT = Unit("bind_latch", play, {"max_wefts_per_subpartition": 8})
