"""Area, delay and energy between nodes by the published equations of Stillmaker and Baas.

A. Stillmaker and B. Baas, "Scaling equations for the accurate prediction of CMOS device performance from 180 nm to
7 nm", Integration 58 (2017) 74-81, doi 10.1016/j.vlsi.2017.02.002, with its corrigendum; high-performance devices.
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.errors import unknown_name

_DELAY = {
    "180": (0.0, 97.09, -356.7, 406.5),
    "45": (-501.6, 1567.0, -1619.0, 566.1),
    "32": (-1047.0, 2982.0, -2797.0, 873.5),
    "16": (0.0, 24.8, -47.52, 28.87),
    "7": (-28.58, 76.6, -70.26, 24.69),
}
"""Coefficients of V^3, V^2, V, 1 by node in nm."""
_ENERGY = {
    "180": (0.0, 24.64, -17.98),
    "65": (3.755, -4.398, 1.975),
    "45": (1.018, -0.3107, 0.1539),
    "32": (0.8367, -0.4341, 0.1701),
    "16": (0.2958, -0.1241, 0.03024),
    "7": (0.1776, -0.09097, 0.02447),
}
"""Coefficients of V^2, V, 1."""
_AREA_OVER_7 = {"180": 320.0, "45": 17.0, "16": 3.2, "7": 1.0}
"""Area of the same circuit over that at 7 nm, two digits as published."""


def _at(table: Mapping[str, tuple[float, ...]], node: str, voltage: float) -> float:
    if node not in table:
        raise unknown_name("node with scaling coefficients", node, table)
    value = 0.0
    for coefficient in table[node]:
        value = value * voltage + coefficient
    return value


def energy(node: str, voltage: float) -> float:
    """Return the energy factor of a node at a voltage; only ratios mean something. Raises UserError."""
    return _at(_ENERGY, node, voltage)


def energy_ratio(node: str, voltage: float, to: str = "7", to_voltage: float = 0.7) -> float:
    """Return by what an energy is multiplied. Raises UserError."""
    return energy(to, to_voltage) / energy(node, voltage)


def delay_ratio(node: str, voltage: float, to: str = "7", to_voltage: float = 0.7) -> float:
    """Return by what a delay is multiplied. Raises UserError."""
    return _at(_DELAY, to, to_voltage) / _at(_DELAY, node, voltage)


def area_ratio(node: str) -> float:
    """Return by what an area is multiplied to be that at 7 nm. Raises UserError."""
    if node not in _AREA_OVER_7:
        raise unknown_name("node with scaling coefficients", node, _AREA_OVER_7)
    return 1 / _AREA_OVER_7[node]
