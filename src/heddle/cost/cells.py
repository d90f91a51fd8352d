"""Cells of a Liberty file: functions, area, loads, delays (NLDM), energies and leakage, in one set of units.

Times are in ps, capacitances in fF, energies in fJ, leakage in nW, areas as the library has them (square micrometres).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from heddle.cost.liberty import Group, parse
from heddle.cost.tables import Table, table_of

_PREFIXES = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}
EDGES = ("rise", "fall")


@dataclass(frozen=True, slots=True)
class Arc:
    """How an output follows an input: by `kind` (combinational, rising_edge, ...) and `sense`, tables by edge."""

    related: str
    kind: str
    sense: str
    delay: dict[str, Table]
    slew: dict[str, Table]


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin. `setup` has tables over the clock's and the pin's slew; `internal` the energy of an edge, over input slew
    and load, by related pin; where a pin's state decides, the mean of the states."""

    name: str
    output: bool
    capacitance: float
    max_capacitance: float
    function: str
    clock: bool
    arcs: tuple[Arc, ...]
    setup: dict[str, tuple[Table, ...]]
    internal: dict[str, tuple[Energy, ...]]


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a rising and a falling edge in one state of the other pins, supplies summed."""

    rise: tuple[Table, ...]
    fall: tuple[Table, ...]

    def mean(self, slew: float, load: float) -> float:
        """Return the mean of both edges, fJ."""
        return (sum(t.at(slew, load) for t in self.rise) + sum(t.at(slew, load) for t in self.fall)) / 2


@dataclass(frozen=True, slots=True)
class Storage:
    """What a flop or latch keeps: names of the state and its inverse, when it takes what."""

    state: str
    inverse: str
    data: str
    clock: str
    latch: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; `leakage` is in nW."""

    name: str
    area: float
    leakage: float
    pins: dict[str, Pin]
    storage: Storage | None

    @property
    def outputs(self) -> list[Pin]:
        """Return its output pins."""
        return [pin for pin in self.pins.values() if pin.output]

    @property
    def inputs(self) -> list[Pin]:
        """Return its input pins."""
        return [pin for pin in self.pins.values() if not pin.output]


@dataclass(frozen=True, slots=True)
class Library:
    """The cells of a file, and the voltage and temperature that they were characterised at."""

    name: str
    voltage_v: float
    temperature_c: float
    cells: dict[str, Cell] = field(default_factory=dict)


@cache
def load(path: Path) -> Library:
    """Return the cells of a Liberty file; raises UserError where it is none."""
    return library_of(parse(path.read_text("utf-8"), path.name))


def library_of(group: Group) -> Library:
    """Return the cells of a `library` group."""
    reader = _Reader(group)
    cells = {cell.names[0]: reader.cell(cell) for cell in group.of("cell")}
    return Library(group.names[0], group.number("nom_voltage"), group.number("nom_temperature", 25.0), cells)


class _Reader:
    """Turns groups into cells, by the units and templates of their library."""

    def __init__(self, group: Group) -> None:
        unit, kind = group.values.get("capacitive_load_unit", ["1", "pf"])
        self.farad = float(unit) * _PREFIXES[kind.lower().removesuffix("f")]
        self.second = _unit(group.text("time_unit", "1ns"), "s")
        volt = _unit(group.text("voltage_unit", "1V"), "v")
        self.joule = self.farad * volt * volt  # the unit of energy tables follows from those
        self.watt = _unit(group.text("leakage_power_unit", "1nW"), "w")
        kinds = ("lu_table_template", "power_lut_template")
        self.templates = {one.names[0]: one for kind in kinds for one in group.of(kind)}

    def cell(self, group: Group) -> Cell:
        pins = {name: self.pin(pin, name) for pin in group.of("pin") for name in pin.names}
        return Cell(group.names[0], group.number("area"), self._leakage(group), pins, _storage(group))

    def _leakage(self, group: Group) -> float:
        """The value without a condition, of all supplies; else the mean of the states."""
        plain = [one.number("value") for one in group.of("leakage_power") if "when" not in one.values]
        if plain:
            return sum(plain) * self.watt * 1e9
        stated = [one.number("value") for one in group.of("leakage_power")]
        value = sum(stated) / len(stated) if stated else group.number("cell_leakage_power")
        return value * self.watt * 1e9

    def pin(self, group: Group, name: str) -> Pin:
        arcs, setup = [], {"rise": [], "fall": []}  # type: tuple[list[Arc], dict[str, list[Table]]]
        for timing in group.of("timing"):
            kind = timing.text("timing_type", "combinational")
            if kind in ("combinational", "rising_edge", "falling_edge"):
                arcs.append(self._arc(timing, kind))
            elif kind.startswith("setup"):
                for edge in EDGES:
                    setup[edge] += [self._constraint(one) for one in timing.of(f"{edge}_constraint")]
        farads = self.farad * 1e15
        return Pin(
            name, group.text("direction") == "output", group.number("capacitance") * farads,
            group.number("max_capacitance", float("inf")) * farads, group.text("function"),
            group.text("clock") == "true", tuple(arcs), {edge: tuple(tables) for edge, tables in setup.items()},
            self._internal(group),
        )  # fmt: skip

    def _arc(self, timing: Group, kind: str) -> Arc:
        tables = {
            one.kind: table_of(one, self.templates, self.second * 1e12, self.farad * 1e15, self.second * 1e12)
            for one in timing.groups
        }
        return Arc(
            timing.text("related_pin"),
            kind,
            timing.text("timing_sense", "non_unate"),
            {edge: tables[f"cell_{edge}"] for edge in EDGES if f"cell_{edge}" in tables},
            {edge: tables[f"{edge}_transition"] for edge in EDGES if f"{edge}_transition" in tables},
        )

    def _constraint(self, group: Group) -> Table:
        ps = self.second * 1e12
        return table_of(group, self.templates, ps, ps, ps)

    def _internal(self, group: Group) -> dict[str, tuple[Energy, ...]]:
        """Energies by related pin (empty for the pin's own): one for each state, supplies together."""
        found: dict[str, dict[str, tuple[list[Table], list[Table]]]] = {}
        for power in group.of("internal_power"):
            states = found.setdefault(power.text("related_pin"), {})
            sums = states.setdefault(power.text("when"), ([], []))
            for edge, tables in zip(EDGES, sums, strict=True):
                tables += [self._energy(one) for one in (*power.of(f"{edge}_power"), *power.of("power"))]
        return {
            related: tuple(Energy(tuple(rise), tuple(fall)) for rise, fall in states.values())
            for related, states in found.items()
        }

    def _energy(self, group: Group) -> Table:
        return table_of(group, self.templates, self.second * 1e12, self.farad * 1e15, self.joule * 1e15)


def _unit(text: str, ending: str) -> float:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    letters = text[len(digits) :].lower().removesuffix(ending)
    return float(digits) * _PREFIXES[letters]


def _storage(group: Group) -> Storage | None:
    for kind, data, clock in (("ff", "next_state", "clocked_on"), ("latch", "data_in", "enable")):
        for one in group.of(kind):
            if data in one.values and clock in one.values:
                names = [*one.names, ""]
                return Storage(names[0], names[1], one.text(data), one.text(clock), kind == "latch")
    return None
