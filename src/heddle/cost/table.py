"""The table of what FIBER's units cost an SM, at 7 nm, beside the paper's totals; every assumption by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.cost.blocks import LANES
from heddle.cost.crossbar_model import crossbar, wire_fj
from heddle.cost.energies import BITMAP, Energies, of_measured
from heddle.cost.scaling import area_ratio, delay_ratio
from heddle.cost.unit_cost import CLOCK_GHZ
from heddle.machine.spec import Machine

PAPER = {"area_mm2": 0.0053, "power_mw": 10.75, "area_share": 0.001, "power_share": 0.004, "clock_ghz": 2.5}
"""Table IV in all: mm2 and mW of an SM, shares of a baseline SM that it stays under."""
DIE_MM2, DIE_SMS = 826.0, 128
"""A100 (NVIDIA's white paper): the die, and the SMs on it. An SM is taken as its share of the die, caches included."""
SRAM_UM2_A_BIT = 0.061
"""Of the ASAP7 SRAM macros of hammer-vlsi (4 kbit: 249 um2 in all), one port."""
REGISTER_BITS = LANES * 32
VARIANTS = ("flop", "latch", "sram")


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed beside the netlists: clock, a crossbar word's wires, share of full load, the library's node."""

    clock_ghz: float = CLOCK_GHZ
    wire_um: float = 100.0
    load: float = 1.0
    node: str = "7"


def full_load(machine: Machine) -> dict[str, float]:
    """Return events a cycle of an SM that reads from every port and in each subpartition issues and changes bits."""
    parts = float(machine.subpartitions)
    every = ("instruction", "request", "lookup_full", "empty_set", "empty_clear", "full_set", "full_clear", "bind")
    return dict.fromkeys(every, parts) | {"transfer": parts * machine.register_banks, "lookup_empty": 3 * parts}


UNIT_EVENTS = {
    "selector": (), "decode_extension": ("instruction",), "read_port_arbiter": ("request",),
    "crossbar": ("transfer",), "bind_latch": ("bind",), "weft_context": ("set_fiber_num",),
    "bitmap": ("empty_set", "empty_clear", "full_set", "full_clear", "lookup_empty", "lookup_full"),
}  # fmt: skip
"""Which events each unit's power is of; an instruction's energy is that of selector and decode together."""


def table(measured: Mapping[str, Any], machine: Machine, assumed: Assumptions) -> dict[str, Any]:
    """Return `rows`, `bitmap` by storage, `totals` by storage with shares of an SM, `paper`, `notes`."""
    energies = of_measured(dict(measured), machine, assumed.node)
    events = {name: rate * assumed.load for name, rate in full_load(machine).items()}
    rows = [_row(name, measured, energies, events, assumed) for name in UNIT_EVENTS if name != "bitmap"]
    model = crossbar(machine.subpartitions, REGISTER_BITS, assumed.clock_ghz)
    wires = wire_fj(REGISTER_BITS, assumed.wire_um, energies.voltage_v) * events["transfer"]
    others = [
        {"unit": f"wires of {assumed.wire_um:g} um", "power_mw": wires * assumed.clock_ghz * 1e-3},
        {
            "unit": "crossbars, ORION-style model (for comparison)",
            "area_um2": model.area_um2 * machine.register_banks,
            "power_mw": model.power_mw * machine.register_banks,
        },
    ]
    bitmap = _bitmap(measured, machine, energies, events, assumed)
    totals = {one["storage"]: _total([*rows, others[0], one], machine) for one in bitmap}
    return {
        "library": measured["library"], "voltage_v": energies.voltage_v, "clock_ghz": assumed.clock_ghz,
        "rows": rows, "others": others, "bitmap": bitmap, "totals": totals, "paper": PAPER,
        "notes": notes(measured, assumed),
    }  # fmt: skip


def _row(
    name: str, measured: Mapping[str, Any], energies: Energies, events: Mapping[str, float], assumed: Assumptions
) -> dict[str, Any]:
    block = measured["blocks"][name]
    cost, copies = block["cost"], block["copies"]
    dynamic = sum(energies.events[one] * events.get(one, 0.0) for one in UNIT_EVENTS[name])
    clock, leakage = energies.clock.get(name, 0.0), block["leakage_uw"] * copies * 1e-3
    power = (dynamic + clock) * assumed.clock_ghz * 1e-3 + leakage
    return {
        "unit": name, "copies": copies, "area_um2": cost["area"] * copies * area_ratio(assumed.node),
        "power_mw": power, "clock_mw": clock * assumed.clock_ghz * 1e-3, "leakage_mw": leakage,
        **_times(cost, measured, assumed),
    }  # fmt: skip


def _times(cost: Mapping[str, Any], measured: Mapping[str, Any], assumed: Assumptions) -> dict[str, float]:
    scale = 1.0 if assumed.node == "7" else delay_ratio(assumed.node, measured["voltage_v"])
    return {
        "arrival_ps": cost["arrival_ps"] * scale, "slack_ps": 1000 / assumed.clock_ghz - cost["needed_ps"] * scale,
        "stages": cost["stages"],
    }  # fmt: skip


def _bitmap(
    measured: Mapping[str, Any], machine: Machine, energies: Energies, events: Mapping[str, float], assumed: Assumptions
) -> list[dict[str, Any]]:
    """Return a row a way to store the bits. Latches: the flops' area by the ratio of the cells, nothing clocked."""
    parts = [measured["blocks"][name] for name in BITMAP]
    area = sum(one["cost"]["area"] * one["copies"] for one in parts)
    flops = sum(one["cost"]["flop_area"] * one["copies"] for one in parts)
    scale, to_mw = area_ratio(assumed.node), assumed.clock_ghz * 1e-3
    dynamic = sum(energies.events[one] * events.get(one, 0.0) for one in UNIT_EVENTS["bitmap"]) * to_mw
    clock = sum(energies.clock[name] for name in BITMAP) * to_mw
    leakage = sum(one["leakage_uw"] * one["copies"] for one in parts) * 1e-3
    times = _times(max((one["cost"] for one in parts), key=lambda cost: cost["needed_ps"]), measured, assumed)
    rows = [_stored("flop", area * scale, dynamic + clock + leakage, clock) | times]
    if measured["latch_area"] and measured["flop_area"]:
        latches = flops * measured["latch_area"] / measured["flop_area"]
        rows.append(_stored("latch", (area - flops + latches) * scale, dynamic + leakage, 0.0) | times)
    bits = machine.vector_registers * (machine.subpartitions + machine.subpartitions + 1)
    return [*rows, _stored("sram", bits * SRAM_UM2_A_BIT, 0.0, 0.0)]


def _stored(storage: str, area: float, power: float, clock: float) -> dict[str, Any]:
    return {
        "unit": f"busy bitmap, {storage}",
        "storage": storage,
        "area_um2": area,
        "power_mw": power,
        "clock_mw": clock,
    }


def _total(rows: list[dict[str, Any]], machine: Machine) -> dict[str, float]:
    area = sum(row.get("area_um2", 0.0) for row in rows) * 1e-6
    power = sum(row["power_mw"] for row in rows)
    return {
        "area_mm2": area, "power_mw": power, "area_share": area / (DIE_MM2 / DIE_SMS),
        "power_share": power / (machine.tdp_watts / machine.sms * 1e3),
    }  # fmt: skip


def notes(measured: Mapping[str, Any], assumed: Assumptions) -> list[str]:
    """Return the assumptions, and what makes the difference to the paper, in words."""
    every = [measured["blocks"][name] for name in ("empty_home", "full_home")]
    ports = sum(one["cost"]["area"] * one["copies"] for one in every) * area_ratio(assumed.node)
    scaled = f", scaled from {assumed.node} nm by Stillmaker and Baas (delays so scaled are optimistic)"
    return [
        f"library {measured['library']}, {measured['voltage_v']:g} V, {measured['temperature_c']:g} C"
        f"{'' if assumed.node == '7' else scaled}; before layout: no wires but the row of them, no clock tree",
        f"power at {assumed.load:.0%} of full load: in each cycle every subpartition issues an instruction that looks "
        "up three sources and changes a bit of each kind, and every bank port is read through the crossbar",
        "events are measured one by one, each from rest (the crossbar returns to zero); gates without glitches",
        f"wires: 0.166 fF/um, half of the bits of a word change, {assumed.wire_um:g} um (--wire-um), proportional",
        f"an SM is {DIE_MM2:g} mm2 / {DIE_SMS} of the die, its power a share of the TDP by SMs in use",
        "bitmap: one set and one clear from each subpartition a cycle, E in four replicas, F in five parts; with every "
        f"port of the simulator's rule it takes {ports:.0f} um2 with flops",
        "latch: area of the flops by the ratio of the cells, no clock; an estimate. sram: 0.061 um2 a bit (ASAP7 "
        "macros of hammer-vlsi), storage and one port alone: no broadcast, no look-up; its power is not estimated",
        "what drives the difference to the paper: decoders and ports of the bitmap outweigh its bits (groups of up to "
        "128 registers, changes from four subpartitions at once); the paper's area leaves 0.21 um2 a bit for bits and "
        "ports together, its power no clock at flops",
    ]
