"""The power that FIBER's units add to an SM while a kernel runs, from its events and the shipped energies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.cost.crossbar_model import wire_fj
from heddle.cost.energies import Energies, shipped
from heddle.cost.table import REGISTER_BITS, Assumptions
from heddle.machine.spec import Machine

BITS = ("empty_home_lean", "full_home_lean")


def added_power(
    events: Mapping[str, int], result: Mapping[str, Any], machine: Machine, energies: Energies | None = None
) -> dict[str, Any]:
    """Return mW of a simulated SM by what it is for, and the share of the TDP if all SMs do the same.

    `result`: cycles, clock and simulated SMs of the run that had the events. The bitmap is of latches; with flops its
    clock comes on top, as `flop_clock_mw`.
    """
    table = energies or shipped()
    cycles = result["cycles"] * result["simulation"]["simulated_sms"]
    to_mw = result["clock_mhz"] * 1e-6 / max(1, cycles)
    spent = {name: count * table.events[name] * to_mw for name, count in sorted(events.items())}
    wire_um = Assumptions().wire_um
    wires = events.get("transfer", 0) * wire_fj(REGISTER_BITS, wire_um, table.voltage_v) * to_mw
    clock = sum(value for name, value in table.clock.items() if name not in BITS) * result["clock_mhz"] * 1e-6
    flops = sum(table.clock.get(name, 0.0) for name in BITS) * result["clock_mhz"] * 1e-6
    total = sum(spent.values()) + wires + clock + table.leakage_uw * 1e-3
    return {
        "events": dict(sorted(events.items())), "by_event_mw": spent, "wires_mw": wires, "wire_um": wire_um,
        "clock_mw": clock, "leakage_mw": table.leakage_uw * 1e-3, "sm_mw": total, "flop_clock_mw": flops,
        "gpu_w": total * machine.sms * 1e-3, "tdp_share": total * machine.sms * 1e-3 / machine.tdp_watts,
        "energies": table.source,
    }  # fmt: skip
