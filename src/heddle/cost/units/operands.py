"""Random operands of SIMD instructions, and how modules take them."""

from __future__ import annotations

from random import Random

from heddle.cost.stand_ins import Weft
from heddle.cost.trace import pack
from heddle.ir.warp import Instruction, Register
from heddle.ir.warp_fiber import OWN
from heddle.machine.spec import Machine
from heddle.sim.reference.registers import registers, simd_slots

SLOTS = 4
SIZES = (0, 0, 0, 1, 2)  # log2 of counts; most operands are single registers


def random_group(random: Random, machine: Machine, few: int, place: int | None) -> Register:
    """Return an aligned group of registers, mostly of the `few` lowest, so that instructions often meet."""
    count = 1 << random.choice(SIZES)
    limit = few if random.random() < 0.8 else machine.vector_registers // machine.subpartitions
    return Register(random.randrange(limit) // count * count, count, place=place)


def random_instruction(random: Random, machine: Machine, few: int) -> Instruction:
    """Return an instruction with up to four operands, of its own subpartition or remote ones."""
    remote = random.random() < 0.75
    places = [*range(machine.subpartitions), OWN] if remote else [None]
    slots = random.randint(1, SLOTS)
    return Instruction(
        op="FFMA", src=tuple(random_group(random, machine, few, random.choice(places)) for _ in range(slots))
    )


def slots_of(weft: Weft, instruction: Instruction) -> list[tuple[int, int, int]]:
    """Return place, first number and log2 of the count of each slot that ports deliver."""
    groups = [registers(weft.as_warp(), slot) for slot in simd_slots(instruction)]
    return [(group[0].subpartition, group[0].number, len(group).bit_length() - 1) for group in groups if group]


def slot_ports(slots: list[tuple[int, int, int]], machine: Machine) -> dict[str, int]:
    """Return the module ports of the slots of one instruction."""
    place, index = bits_of(machine.subpartitions), bits_of(machine.vector_registers // machine.subpartitions)
    return {
        "slot_valid": (1 << len(slots)) - 1,
        "slot_place": pack((slot[0] for slot in slots), place),
        "slot_number": pack((slot[1] for slot in slots), index),
        "slot_size": pack((slot[2] for slot in slots), 2),
    }


def bits_of(count: int) -> int:
    """Return the bits that number `count` things, a power of two."""
    return count.bit_length() - 1
