"""Read ports and their arbiter, against the simulator's arbiter and ports."""

from __future__ import annotations

from random import Random

from heddle.cost.stand_ins import Weft
from heddle.cost.trace import Trace, Unit, pack
from heddle.cost.units.operands import SLOTS, bits_of, random_instruction, slot_ports, slots_of
from heddle.ir.warp import Instruction
from heddle.machine.spec import Machine
from heddle.sim.reference.arbiter import Arbiter
from heddle.sim.reference.ports import RegisterPorts
from heddle.sim.reference.registers import is_remote
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, ticks

FEW = 8
IDLE, RETRY = 0.15, 0.7  # how often a subpartition has nothing, or asks again for what was denied


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Let the simulator grant random instructions, cycle by cycle, in the order that turns."""
    parts = machine.subpartitions
    ports = [RegisterPorts(machine, set(), lambda length, cycle: ticks(length)) for _ in range(parts)]
    arbiter, wefts, trace = Arbiter(ports), [Weft(part) for part in range(parts)], Trace()
    waiting: list[Instruction | None] = [None] * parts
    for cycle in range(cycles):
        for part in range(parts):
            if waiting[part] is None or random.random() > RETRY:
                waiting[part] = None if random.random() < IDLE else random_instruction(random, machine, FEW)
        trace.give(start=cycle % parts, **_requests(wefts, waiting, machine))
        backlog = [_backlog(one, bank, cycle) for one in ports for bank in range(machine.register_banks)]
        extra = [0] * parts
        granted = 0
        for turn in range(parts):
            part = (cycle + turn) % parts
            cost = _ask(arbiter, ports[part], wefts[part], waiting[part], cycle)
            if cost is not None:
                granted |= 1 << part
                extra[part], waiting[part] = cost, None
        trace.expect(grant=granted, extra=pack(extra, 4), backlog=pack(backlog, 5))
    return trace


def _ask(arbiter: Arbiter, own: RegisterPorts, weft: Weft, instruction: Instruction | None, cycle: int) -> int | None:
    """Return the extra cycles of an instruction that reads now; None if there is none, or it has to wait."""
    if instruction is None:
        return None
    if is_remote(instruction):
        return arbiter.grant(weft.as_warp(), instruction, cycle)
    if own.blocked(weft.as_warp(), instruction, cycle) is not None:
        return None
    return own.read(weft.as_warp(), instruction, cycle)


def _requests(wefts: list[Weft], waiting: list[Instruction | None], machine: Machine) -> dict[str, int]:
    """Return the module ports for what the subpartitions want."""
    widths = {
        "slot_valid": SLOTS,
        "slot_place": SLOTS * bits_of(machine.subpartitions),
        "slot_number": SLOTS * bits_of(machine.vector_registers // machine.subpartitions),
        "slot_size": SLOTS * 2,
    }
    each = [
        slot_ports([] if instruction is None else slots_of(weft, instruction), machine)
        for weft, instruction in zip(wefts, waiting, strict=True)
    ]
    return {
        "valid": pack((instruction is not None for instruction in waiting), 1),
        "remote": pack((instruction is not None and is_remote(instruction) for instruction in waiting), 1),
        **{name: pack((one[name] for one in each), width) for name, width in widths.items()},
    }


def _backlog(ports: RegisterPorts, bank: int, cycle: int) -> int:
    """Return how many cycles a port is still taken."""
    return max(0, ports.free(bank) // TICKS_PER_CYCLE - cycle)


UNIT = Unit("read_ports", play, {"register_reuse_cache": False})
