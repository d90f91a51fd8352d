"""The hardware that FIBER adds to an SM, as blocks to synthesise: which module, how often, how much of it is mapped.

The bitmap is mapped in slices of registers, the crossbar in slices of lanes, since they repeat; `copies` counts slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heddle.cost.verilog import parameters_of
from heddle.errors import unknown_name
from heddle.machine.spec import Machine

SLICE_REGISTERS = 64
"""Registers of a mapped slice of the bitmap. The whole decodes three bits more of a number, once for many registers."""
SLICE_LANES = 8
LANES = 32
"""Lanes of a vector register."""


@dataclass(frozen=True, slots=True)
class Block:
    """A module with what it is mapped with; `copies` of it make the SM's."""

    name: str
    module: str
    copies: int
    parameters: dict[str, int] = field(default_factory=dict)


def blocks(machine: Machine) -> dict[str, Block]:
    """Return the blocks of an SM by name. Raises UserError where the units cannot be built for the machine."""
    parts, banks = machine.subpartitions, machine.register_banks
    slices = machine.vector_registers // parts // SLICE_REGISTERS
    home = {"REGISTERS": SLICE_REGISTERS}
    lean = {"SETS": parts, "CLEARS": parts}
    found = (
        Block("selector", "selector", parts),
        Block("decode_extension", "decode_extension", parts),
        Block("read_port_arbiter", "read_port_arbiter", 1),
        Block("crossbar", "crossbar", banks * LANES // SLICE_LANES, {"LANES": SLICE_LANES, "COPIES": 1}),
        Block("empty_home", "empty_home", parts * parts * slices, home),
        Block("full_home", "full_home", parts * slices, home),
        Block("empty_home_lean", "empty_home", parts * parts * slices, home | lean),
        Block("full_home_lean", "full_home", parts * slices, home | lean),
        Block("bind_latch", "bind_latch", parts),
        Block("weft_context", "weft_context", 1),
    )
    return {
        one.name: Block(one.name, one.module, one.copies, parameters_of(machine, one.module) | one.parameters)
        for one in found
    }


def block_named(name: str, machine: Machine) -> Block:
    """Return a block. Raises UserError."""
    every = blocks(machine)
    if name not in every:
        raise unknown_name("unit to synthesise", name, every)
    return every[name]
