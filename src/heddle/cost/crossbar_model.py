"""The crossbar by an analytic model in the manner of ORION 3.0, scaled to 7 nm; and wires by their length.

The equations are those of A. B. Kahng, B. Lin and S. Nath, "Explicit modeling of control and data for improved NoC
router estimation", DAC 2012, for a crossbar of multiplexers: inputs x outputs x width instances of a 2:1 multiplexer,
each with an area, an energy inside and a load that switches (1.4 of it for clock and control).
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.cost.scaling import area_ratio, energy_ratio

MUX2_AREA_UM2, MUX2_LEAKAGE_NW = 1.764, 12.08  # at 45 nm, normal threshold
MUX2_CAPACITANCE_FF, MUX2_INTERNAL_FJ = 1.84, 1.93
NODE, VOLTAGE_V = "45", 1.0
CONTROL_SHARE = 1.4
WIRE_FF_PER_UM = 0.166
"""Mean of the routing layers that the OpenROAD flow states for ASAP7."""


@dataclass(frozen=True, slots=True)
class Model:
    """Area and, at full use, power at 7 nm and 0.7 V."""

    instances: int
    area_um2: float
    power_mw: float


def crossbar(ports: int, width: int, clock_ghz: float, activity: float = 0.5) -> Model:
    """Return a crossbar of as many inputs as outputs; `activity`: changes of a bit a cycle."""
    instances = ports * ports * width
    switching = 0.5 * CONTROL_SHARE * MUX2_CAPACITANCE_FF * VOLTAGE_V**2
    dynamic = (MUX2_INTERNAL_FJ + switching) * activity * instances * clock_ghz * 1e-3
    leakage = MUX2_LEAKAGE_NW * instances * 1e-6
    scaled = (dynamic + leakage) * energy_ratio(NODE, VOLTAGE_V)
    return Model(instances, instances * MUX2_AREA_UM2 * area_ratio(NODE), scaled)


def wire_fj(bits: int, length_um: float, voltage_v: float, activity: float = 0.5) -> float:
    """Return the energy of a word that goes along wires, fJ: half of its bits change, each costs C V^2 / 2."""
    return bits * activity * WIRE_FF_PER_UM * length_um * voltage_v**2 / 2
