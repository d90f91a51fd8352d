"""The units: for each module, random input and what the simulator's unit of the same task answers."""

from __future__ import annotations

from heddle.cost.trace import Unit
from heddle.cost.units import (
    bind_latch,
    busy_bitmap,
    crossbar,
    decode_extension,
    read_ports,
    selector,
    weft_context,
)
from heddle.errors import unknown_name

_MODULES = (selector, decode_extension, read_ports, crossbar, busy_bitmap, bind_latch, weft_context)
UNITS: dict[str, Unit] = {module.UNIT.name: module.UNIT for module in _MODULES}
"""All units that are simulated together with the simulator's, by the name of the module."""


def unit_named(name: str) -> Unit:
    """Return a unit. Raises UserError."""
    if name not in UNITS:
        raise unknown_name("hardware unit", name, UNITS)
    return UNITS[name]
