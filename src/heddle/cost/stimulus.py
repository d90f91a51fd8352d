"""Events that a unit can see, as random inputs of its module, to measure what each costs.

An event is a bundle of ports: a bit that says that a slot is valid, and fields, which change with it and else stay as
they are (what drives them are flops that an event loads).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from heddle.cost.gates import Gates, Toggles
from heddle.cost.netlist import Netlist

CYCLES = 24
_GROUP = ("place", "number", "size")


@dataclass(frozen=True, slots=True)
class Event:
    """Slots of a module, the port with their valid bits (none: always) and the ports with their fields.

    `constant`: ports that keep a value of ones (1) or zeros (0); `miss`: a field changes, but no slot is valid.
    """

    slots: int
    valid: str
    fields: tuple[str, ...]
    constant: Mapping[str, int] = field(default_factory=dict)
    miss: bool = False


def _change(kind: str, slots: int, *more: str) -> dict[str, Event]:
    fields = tuple(f"{kind}_{name}" for name in (*_GROUP, *more))
    hit = Event(slots, f"{kind}_valid", fields, {f"{kind}_place": 0})
    return {kind: hit, f"{kind}_miss": Event(slots, f"{kind}_valid", fields, miss=True)}


def events(module: str, netlist: Netlist) -> dict[str, Event]:
    """Return the events of a module by name. Raises KeyError for a module without any."""

    def width(port: str) -> int:
        return len(netlist.inputs[port])

    if module in ("empty_home", "full_home"):
        parts = ("parts",) if module == "full_home" else ()
        found = _change("set", width("set_valid"), *parts) | _change("clear", width("clear_valid"), *parts)
        looked = tuple(name for name in (f"lookup_{field}" for field in _GROUP) if name in netlist.inputs)
        place = {"lookup_place": 0} if "lookup_place" in netlist.inputs else {}
        return found | {
            "lookup": Event(width("lookup_valid"), "lookup_valid", looked, place),
            "lookup_miss": Event(width("lookup_valid"), "lookup_valid", looked, miss=True),
        }
    slots = ("slot_valid", "slot_place", "slot_number", "slot_size")
    free = {"free": 1, "near": 1}
    given: dict[str, dict[str, Event]] = {
        "selector": {"instruction": Event(1, "", ("slot_valid", "slot_place", "slot_low", "slot_size"))},
        "decode_extension": {"instruction": Event(1, "", tuple(p for p in netlist.inputs if p != "own"))},
        "read_port_arbiter": {"request": Event(width("valid"), "valid", ("remote", *slots), free)}
        if module == "read_port_arbiter"
        else {},
        "crossbar": {"transfer": Event(width("enable"), "enable", ("select", "data"))} if module == "crossbar" else {},
        "bind_latch": {"issue": Event(1, "issue", ("context_number", "is_bind", "bind_bits"))},
        "weft_context": {"set_fiber_num": Event(1, "launch", ("waiting", "count", "at_rest"), {"declared": 1})},
    }
    return given[module]


def play(netlist: Netlist, event: Event, seed: int = 0, runs: int = 64, every: int = 2) -> tuple[Toggles, float]:
    """Let an event happen in a slot in every cycle with the chance 2^-every; return changes and events a cycle."""
    gates, random, happened = Gates(netlist, runs), Random(seed), 0
    ports = {port: [0] * len(nets) for port, nets in netlist.inputs.items()}
    for port, value in event.constant.items():
        ports[port] = [gates.all * value] * len(ports[port])
    gates.reset()
    for cycle in range(CYCLES + 1):
        for slot in range(event.slots):
            active = gates.all
            for _ in range(every):
                active &= random.getrandbits(runs)
            if cycle:
                happened += active.bit_count()
            if event.valid:
                ports[event.valid][slot] = 0 if event.miss else active
            for name in event.fields:
                if name not in event.constant:
                    _renew(ports[name], slot, event.slots, active, random, runs)
        gates.cycle(ports)
    return gates.toggles, happened / (runs * gates.toggles.cycles)


def _renew(bits: list[int], slot: int, slots: int, active: int, random: Random, runs: int) -> None:
    """Give a slot's part of a port new random bits in the runs in which something happens."""
    width = len(bits) // slots
    for k in range(slot * width, (slot + 1) * width):
        bits[k] = (random.getrandbits(runs) & active) | (bits[k] & ~active)
