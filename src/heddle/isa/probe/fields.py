"""Find the fields with values: bits whose flip changes one number or register of the text by a power of two."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from heddle.isa.form import Bits, gather
from heddle.isa.instruction import SLOTS, Kind
from heddle.isa.numbers import float_text
from heddle.isa.probe.atoms import Atoms

_REGISTER = re.compile(r"(R|UR)(\d+|Z)$")
_HEX = re.compile(r"-?0x[0-9a-f]+$")
_FLOAT = re.compile(r"[-+]?(\d+(\.\d+)?(e[-+]?\d+)?|INF|QNAN|SNAN)$")
_REGISTER_KINDS = {"R": Kind.GPR, "UR": Kind.UNIFORM}
MIN_BITS = 4
"""Fields of fewer bits are learned as lists of texts."""
_FLOAT_PLACES = {
    ((63, 32),): (Kind.FLOAT32, Kind.FLOAT64_HIGH),
    ((63, 48),): (Kind.FLOAT16, Kind.BFLOAT16),
    ((47, 32),): (Kind.FLOAT16, Kind.BFLOAT16),
}


@dataclass(slots=True)
class Found:
    """A value field as it is being learned; `atom` is its place in the base's text."""

    atom: int
    kind: Kind
    bits: Bits
    scale: int = 1
    hidden: int | None = None
    before: Atoms = ()
    after: Atoms = ()
    positions: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.positions = {bit for high, low in self.bits for bit in range(low, high + 1)}


def is_value(atom: str) -> bool:
    """Return whether an atom may be the value of a field."""
    return bool(_REGISTER.match(atom) or _HEX.match(atom) or _FLOAT.match(atom))


def is_float(atom: str) -> bool:
    """Return whether an atom is a decimal number."""
    return bool(_FLOAT.match(atom))


def signature(atoms: Atoms) -> Atoms:
    """Return the atoms with values replaced by their kind."""
    return tuple(_kind_of(atom) for atom in atoms)


def _kind_of(atom: str) -> str:
    if match := _REGISTER.match(atom):
        return "<" + match.group(1)
    return "<#" if _HEX.match(atom) else "<." if _FLOAT.match(atom) else atom


def find_fields(base: int, atoms: Atoms, flips: dict[int, Atoms | None], relative: bool) -> list[Found]:
    """Return the value fields of a base word; `flips` has the text with each bit flipped, None where it is illegal."""
    steps: dict[int, dict[int, int]] = {}  # atom -> bit -> signed step
    floats: dict[int, dict[int, str]] = {}
    for bit, other in flips.items():
        place = _only_difference(atoms, other)
        if place is None or other is None:
            continue
        if _FLOAT.match(atoms[place]) or _FLOAT.match(other[place]):
            floats.setdefault(place, {})[bit] = other[place]
        elif (step := _step(atoms[place], other[place])) is not None:
            steps.setdefault(place, {})[bit] = step if not base >> bit & 1 else -step
    found = [field for place, bits in steps.items() if (field := _linear(place, atoms[place], bits, relative))]
    return found + [field for place, bits in floats.items() if (field := _float_field(base, place, atoms[place], bits))]


def _only_difference(atoms: Atoms, other: Atoms | None) -> int | None:
    if other is None or len(other) != len(atoms):
        return None
    places = [place for place, (old, new) in enumerate(zip(atoms, other, strict=True)) if old != new]
    return places[0] if len(places) == 1 else None


def _step(old: str, new: str) -> int | None:
    before, after = _REGISTER.match(old), _REGISTER.match(new)
    if before and after and before.group(1) == after.group(1) and "Z" not in (before.group(2), after.group(2)):
        return int(after.group(2)) - int(before.group(2))
    if _HEX.match(old) and _HEX.match(new):
        return int(new, 16) - int(old, 16)
    return None


def _linear(place: int, atom: str, steps: dict[int, int], relative: bool) -> Found | None:
    """Return a field whose bits step its value by powers of two, the top one downwards if it is signed."""
    by_power = {
        abs(step).bit_length() - 1: bit for bit, step in steps.items() if step and not abs(step) & abs(step) - 1
    }
    if len(by_power) < MIN_BITS:
        return None
    register = _REGISTER.match(atom)
    if register:
        ranges = [(high, low) for high, low in SLOTS if low <= min(by_power.values()) <= max(by_power.values()) <= high]
        kind = _REGISTER_KINDS[register.group(1)]
        if ranges and (kind == Kind.GPR or len(by_power) > 6):
            return Found(place, kind, (ranges[0],))
        return Found(place, kind, _ranges([by_power[power] for power in sorted(by_power, reverse=True)]))
    powers = sorted(by_power)
    if powers != list(range(powers[0], powers[-1] + 1)):
        powers = _longest_run(powers)
    if len(powers) < MIN_BITS:
        return None
    signed = steps[by_power[powers[-1]]] < 0
    kind = Kind.TARGET if relative and signed and len(powers) > 20 else Kind.SIGNED if signed else Kind.UNSIGNED
    return Found(place, kind, _ranges([by_power[power] for power in reversed(powers)]), 1 << powers[0])


def _longest_run(powers: list[int]) -> list[int]:
    runs: list[list[int]] = []
    for power in powers:
        if runs and runs[-1][-1] == power - 1:
            runs[-1].append(power)
        else:
            runs.append([power])
    return max(runs, key=len)


def _ranges(bits: list[int]) -> Bits:
    """Return ranges of bits given from the most significant one."""
    ranges: list[tuple[int, int]] = []
    for bit in bits:
        if ranges and ranges[-1][1] == bit + 1:
            ranges[-1] = (ranges[-1][0], bit)
        else:
            ranges.append((bit, bit))
    return tuple(ranges)


def _float_field(base: int, place: int, atom: str, flips: dict[int, str]) -> Found | None:
    best: tuple[int, Kind, Bits] | None = None
    for bits, kinds in _FLOAT_PLACES.items():
        ((high, low),) = bits
        inside = {bit: text for bit, text in flips.items() if low <= bit <= high}
        for kind in kinds:
            value = gather(base, bits)
            right = sum(float_text(kind, value ^ 1 << bit - low) == text for bit, text in inside.items())
            if float_text(kind, value) == atom and right >= MIN_BITS and (best is None or right > best[0]):
                best = right, kind, bits
    return Found(place, best[1], best[2]) if best else None
