"""The decode extension, from bits of the word to registers, against the codec and the simulator's registers."""

from __future__ import annotations

from random import Random

from heddle.cost.stand_ins import Role, Weft
from heddle.cost.trace import Trace, Unit, pack
from heddle.cost.units.operands import SLOTS, bits_of
from heddle.ir.warp import RZ, Register
from heddle.ir.warp_fiber import OWN
from heddle.isa.layouts import FIBER_LOW, LAYOUTS, Flags
from heddle.machine.spec import Machine
from heddle.sim.reference.registers import Physical, registers

LETTERS = "ABCD"
LAYOUT = LAYOUTS["heddle"]
ALIGNMENT = 4  # of a FIBER-thread's registers
EDGES = (0, 3, 254, 255)  # register fields that are taken more often


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Let codec and simulator say which registers random words mean."""
    trace = Trace()
    for _ in range(cycles):
        _one(machine, random, trace)
    return trace


def _one(machine: Machine, random: Random, trace: Trace) -> None:
    limit = machine.vector_registers // machine.subpartitions
    number_bits, place_bits = bits_of(limit), bits_of(machine.subpartitions)
    fields, has = random.getrandbits(13), random.getrandbits(SLOTS)
    low = [random.choice(EDGES) if random.random() < 0.2 else random.getrandbits(8) for _ in range(SLOTS + 1)]
    a_is_local, has_destination = random.random() < 0.2, random.random() < 0.7
    weft = Weft(random.randrange(machine.subpartitions), Role(random.choice((0, limit // 2))))
    first = [random.randrange(limit // ALIGNMENT) * random.randrange(2) for _ in range(machine.subpartitions)]
    trace.give(
        fields=fields, has=has, low=pack(low[:SLOTS], 8), a_is_local=a_is_local, has_destination=has_destination,
        destination=low[SLOTS], own=weft.subpartition, base=weft.role.base,
        allocation=pack(first, number_bits - bits_of(ALIGNMENT)),
    )  # fmt: skip
    named = [_source(weft, fields, low[s], s, has, a_is_local) if has >> s & 1 else () for s in range(SLOTS)]
    written = registers(weft.as_warp(), Register(low[SLOTS])) if has_destination else ()
    sums = [[first[r.subpartition] * ALIGNMENT + r.number for r in group] for group in (*named, written)]
    valid = [bool(group) for group in named]
    trace.expect(
        remote=fields >> 12 & 1,
        slot_valid=pack(valid, 1),
        slot_place=pack((group[0].subpartition if group else 0 for group in named), place_bits),
        slot_number=pack((group[0] if group else 0 for group in sums[:SLOTS]), number_bits),
        destination_valid=bool(written),
        destination_number=(sums[SLOTS][0] if written else 0) & (limit - 1),
        overflow=any(number >= limit for group in sums for number in group),
    )
    trace.care(
        slot_place=pack((-1 if given else 0 for given in valid), place_bits),
        slot_number=pack((-1 if given else 0 for given in valid), number_bits),
        destination_number=limit - 1 if written else 0,
    )


def _source(weft: Weft, fields: int, low: int, slot: int, has: int, a_is_local: bool) -> tuple[Physical, ...]:
    """Return the register of a source slot, none for RZ."""
    if not fields >> 12 & 1:
        return registers(weft.as_warp(), Register(low))
    flags = Flags(local=not has >> 3 & 1, always_own="A" if a_is_local else "")
    index, place = LAYOUT.read(fields << FIBER_LOW, LETTERS[slot], low, flags)
    if index == RZ:
        return ()
    own = place == "own"
    return registers(weft.as_warp(), Register(index, place=OWN if own or place is None else int(place)))


UNIT = Unit("decode_extension", play)
