"""The selector: which ports an instruction's operands need, against the simulator's read ports."""

from __future__ import annotations

from random import Random

from heddle.cost.stand_ins import Weft
from heddle.cost.trace import Trace, Unit, pack
from heddle.cost.units.operands import bits_of, random_instruction, slots_of
from heddle.machine.spec import Machine
from heddle.sim.reference.ports import RegisterPorts
from heddle.sim.reference.ticks import ticks

FEW = 8


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Let the simulator say which ports random instructions want."""
    ports = RegisterPorts(machine, set(), lambda length, cycle: ticks(length))
    trace, banks = Trace(), machine.register_banks
    for _ in range(cycles):
        weft = Weft(random.randrange(machine.subpartitions))
        instruction = random_instruction(random, machine, FEW)
        slots = slots_of(weft, instruction)
        trace.give(
            slot_valid=(1 << len(slots)) - 1,
            slot_place=pack((place for place, _, _ in slots), bits_of(machine.subpartitions)),
            slot_low=pack((number for _, number, _ in slots), 2),
            slot_size=pack((size for _, _, size in slots), 2),
        )
        wanted = ports.wanted(weft.as_warp(), instruction)
        enable = {register.subpartition * banks + ports.bank(register) for register in wanted}
        trace.expect(enable=sum(1 << port for port in enable))
    return trace


UNIT = Unit("selector", play, {"register_reuse_cache": False})
