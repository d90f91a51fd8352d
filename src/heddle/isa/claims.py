"""The paper's claim of 13 unused bits in every instruction, held against real code: where it holds, and where it does
not.

Bits [104:92] are asked about in Heddle's layout, and the paper's literal place, from bit 87 on, for comparison.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heddle.isa.codec import Decoded
from heddle.isa.cubin.shadow import DESCRIPTOR_OPCODES
from heddle.isa.form import Form
from heddle.isa.instruction import LETTERS, Kind
from heddle.isa.layouts import FIBER_HIGH, FIBER_LOW, LAYOUTS
from heddle.isa.words import get

PAPER_HIGH, PAPER_LOW = 99, 87
"""The 13 bits from bit 87 on, as the paper places them."""
DESCRIPTOR_BIT = 101
LAYOUT = LAYOUTS["heddle"]

ALL, LIMITED, NONE, UNKNOWN = "all sources", "with a limit", "no register source", "opcode not known"
VERDICTS = (ALL, LIMITED, NONE, UNKNOWN)


@dataclass(frozen=True, slots=True)
class FormClaim:
    """What one form of an instruction could do with the 13 bits: its source slots, the bits of use, and what is in
    the way.
    """

    slots: str
    bits: tuple[int, ...]
    limit: str

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        return NONE if not self.slots else LIMITED if self.limit else ALL


@dataclass
class Claims:
    """Counts over instructions of one architecture; `add` counts a piece of code in."""

    architecture: str
    instructions: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)
    set_bits: Counter[tuple[str, int]] = field(default_factory=Counter)
    paper_bits_taken: int = 0
    names: Counter[str] = field(default_factory=Counter)
    by_name: dict[str, FormClaim] = field(default_factory=dict)
    unknown: Counter[int] = field(default_factory=Counter)

    def add(self, decoded: Decoded) -> None:
        """Count the instructions of a piece of code."""
        self.instructions += len(decoded)
        self.paper_bits_taken += int((get(decoded.words, PAPER_HIGH, PAPER_LOW) != 0).sum())
        numbers, counts = np.unique(decoded.form, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number < 0:
                self.verdicts[UNKNOWN] += count
                continue
            form = decoded.table.forms[number]
            claim = claim_of(form, self.architecture)
            self.verdicts[claim.verdict] += count
            self.names[form.name] += count
            self.by_name[form.name] = _wider(self.by_name.get(form.name), claim)
            if claim.limit:
                self.limits[claim.limit] += count
        unknown, times = np.unique(decoded.opcode[decoded.form < 0], return_counts=True)
        self.unknown.update(dict(zip(unknown.tolist(), times.tolist(), strict=True)))
        self._bits(decoded)

    def _bits(self, decoded: Decoded) -> None:
        own = np.array([*(form.own_fiber_bits for form in decoded.table.forms), False])[decoded.form]
        taken: NDArray[np.uint64] = get(decoded.words, FIBER_HIGH, FIBER_LOW)
        for index in np.flatnonzero((taken != 0) & ~own).tolist():
            name = decoded.name(index) or f"{int(decoded.opcode[index]):#x}"
            for bit in range(FIBER_HIGH - FIBER_LOW + 1):
                if int(taken[index]) >> bit & 1:
                    self.set_bits[name, FIBER_LOW + bit] += 1


def claim_of(form: Form, architecture: str) -> FormClaim:
    """Return what a form could do with the 13 bits on an architecture (sm_80, sm_90, sm_100)."""
    sources = [one for one in form.fields if one.kind == Kind.GPR and not one.definition]
    letters = sorted({LETTERS[one.slot] for one in sources if one.slot in LETTERS})
    limits = []
    if any(one.slot == "Rc" and one.kind == Kind.GPR and one.definition for one in form.fields):
        limits.append("slot C is a second destination")
    if any(one.slot == "Rd" for one in sources):
        limits.append("a source in the destination's field stays local")
    bits = {LAYOUT.remote} if letters else set()
    for letter in letters:
        bits |= {LAYOUT.selector[letter], LAYOUT.selector[letter] + 1, LAYOUT.high[letter]}
        if "D" not in letters and letter in LAYOUT.local:
            bits.add(LAYOUT.local[letter])
    if architecture == "sm_80" and form.code in DESCRIPTOR_OPCODES:
        bits.discard(DESCRIPTOR_BIT)
        limits.append(f"bit {DESCRIPTOR_BIT} says that there is a descriptor")
    return FormClaim("".join(letters), tuple(sorted(bits)), "; ".join(limits))


def _wider(known: FormClaim | None, new: FormClaim) -> FormClaim:
    """Return the claim of a name with several forms: the union of slots and bits, the first limit."""
    if known is None:
        return new
    slots = "".join(sorted({*known.slots, *new.slots}))
    return FormClaim(slots, tuple(sorted({*known.bits, *new.bits})), known.limit or new.limit)


def claims_row(claims: Claims) -> dict[str, object]:
    """Return the report as data for JSON."""
    return {
        "architecture": claims.architecture,
        "instructions": claims.instructions,
        "verdicts": {name: claims.verdicts[name] for name in VERDICTS},
        "limits": dict(claims.limits.most_common()),
        "bits_set": [{"name": n, "bit": bit, "instructions": c} for (n, bit), c in claims.set_bits.most_common()],
        "paper_bits_taken": claims.paper_bits_taken,
        "unknown_opcodes": {f"{code:#x}": count for code, count in claims.unknown.most_common()},
        "instructions_by_name": [
            {"name": name, "instructions": count, "slots": claims.by_name[name].slots,
             "bits": list(claims.by_name[name].bits), "limit": claims.by_name[name].limit}
            for name, count in claims.names.most_common()
        ],
    }  # fmt: skip
