"""Where the FIBER fields lie in bits 104:92: Heddle's layout, and the order of the paper for comparison."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import unknown_name
from heddle.isa.instruction import Place
from heddle.isa.words import get_bits

FIBER_HIGH, FIBER_LOW = 104, 92
FIBER_MASK = ((1 << (FIBER_HIGH - FIBER_LOW + 1)) - 1) << FIBER_LOW
SUBPARTITIONS = 4
REGISTER_BITS = 8
RZ = 255
DESCRIPTOR_BIT = 101  # sm_80: flag of the L2 descriptor in global-memory instructions, which leaves slot A no flag


@dataclass(frozen=True, slots=True)
class Flags:
    """How a form uses the local flags: it has them unless it reads slot D; some slots are local whatever they say."""

    local: bool = True
    always_own: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Bits of the FIBER fields: of each slot its selector (low one of two bits), high index bit and local flag."""

    name: str
    remote: int
    selector: dict[str, int]
    high: dict[str, int]
    local: dict[str, int]

    def read(self, word: int, letter: str, low_index: int, flags: Flags) -> tuple[int, Place]:
        """Return index and place of a source of an instruction whose X is set."""
        index = low_index | get_bits(word, self.high[letter], self.high[letter]) << REGISTER_BITS
        if letter in flags.always_own or (flags.local and letter in self.local and word >> self.local[letter] & 1):
            return index, "own"
        return index, get_bits(word, self.selector[letter] + 1, self.selector[letter])

    def write(self, letter: str, index: int, place: Place, flags: Flags) -> int:
        """Return the bits of a source, zero elsewhere; what the layout has no bits for is left out (see `rules`)."""
        word = (index >> REGISTER_BITS & 1) << self.high[letter]
        if letter in flags.always_own:
            return word
        if place == "own":
            return word | (1 << self.local[letter] if flags.local and letter in self.local else 0)
        return word | ((place or 0) % SUBPARTITIONS) << self.selector[letter]


LAYOUTS = {
    "heddle": Layout(
        "heddle", 104,
        selector={"A": 92, "B": 95, "C": 98, "D": 101},
        high={"A": 94, "B": 97, "C": 100, "D": 103},
        local={"A": 101, "B": 102, "C": 103},
    ),
    "paper": Layout(
        "paper", 100,
        selector={"A": 92, "B": 94, "C": 96, "D": 98},
        high={"A": 101, "B": 102, "C": 103, "D": 104},
        local={},
    ),
}  # fmt: skip
"""The layouts by name. In Heddle's, slot D's bits are the local flags of instructions that have no slot D."""


def layout_named(name: str) -> Layout:
    """Return a layout by name. Raises UserError."""
    if name not in LAYOUTS:
        raise unknown_name("FIBER layout", name, LAYOUTS)
    return LAYOUTS[name]
