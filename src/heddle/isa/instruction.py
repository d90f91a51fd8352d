"""One instruction as data: opcode, modifiers, guard, operands, control field, FIBER fields and what is left over.

The fields named here are those that the table of the architecture knows; every other bit of the word is in `extra`, so
that an instruction always stands for exactly one word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

Place = int | Literal["own"] | None
"""Where a register of an instruction with remote operands lies: subpartition 0-3, the weft's own, or not stated."""


class Kind(IntEnum):
    """What an operand field holds."""

    NONE = 0
    GPR = 1  # vector register R0..R254, RZ; up to R511 with a place
    UNIFORM = 2  # uniform register UR0.., URZ
    PREDICATE = 3  # P0..P6, PT
    UNIFORM_PREDICATE = 4  # UP0..UP6, UPT
    UNSIGNED = 5  # integer, written in hexadecimal
    SIGNED = 6  # integer in two's complement
    FLOAT32 = 7  # value = its 32 bits
    FLOAT16 = 8  # value = its 16 bits
    BFLOAT16 = 9  # value = its 16 bits
    FLOAT64_HIGH = 10  # value = the upper 32 bits of a double
    TARGET = 11  # displacement in bytes from the next instruction
    BARRIER = 12  # convergence barrier B0..
    SCOREBOARD = 13  # dependence counter SB0..
    SPECIAL = 14  # special register, by number
    WGMMA_BARRIER = 15  # gsb0
    FIBER_REGISTER = 16  # vector register of the SM: 512 * subpartition + register
    FIBER_OWN = 17  # vector register of the weft's own subpartition, 0 to 511


REGISTER_KINDS = (Kind.GPR, Kind.UNIFORM, Kind.PREDICATE, Kind.UNIFORM_PREDICATE)

SLOTS = {(23, 16): "Rd", (31, 24): "Ra", (39, 32): "Rb", (71, 64): "Rc", (47, 40): "Re"}
"""Names of the 8-bit register fields. Sources Ra, Rb, Rc, Re are the slots A, B, C, D of the FIBER fields."""
LETTERS = {"Ra": "A", "Rb": "B", "Rc": "C", "Re": "D"}


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate of an instruction: 7 is always true; `uniform` for the instructions of the uniform datapath."""

    index: int = 7
    negated: bool = False
    uniform: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """One value field of an instruction, in the order of NVIDIA's text.

    `index` is the register's number, or the value of another kind of field. `count` registers from `index` on are read
    (or written, if `definition`; both, if `update` too). `prefix` and `suffix` are what the text has around it, such as
    `-|` and `|.H0_H0`.
    """

    kind: Kind
    slot: str  # name of the field: "Rd", "Ra", "Rb", "Rc", "Re", "Pu", "Pv", "Pp" or its bits, such as "63:32"
    index: int
    count: int = 1
    definition: bool = False
    update: bool = False
    prefix: str = ""
    suffix: str = ""
    place: Place = None
    position: int = 0  # number of the operand that the field belongs to: the address [R2+UR4+0x10] has three fields

    @property
    def negated(self) -> bool:
        """Whether the operand has a minus sign, or a predicate an exclamation mark."""
        return "-" in self.prefix or "!" in self.prefix

    @property
    def absolute(self) -> bool:
        """Whether the absolute value is taken."""
        return "|" in self.prefix

    @property
    def inverted(self) -> bool:
        """Whether the bits are inverted."""
        return "~" in self.prefix

    @property
    def letter(self) -> str:
        """The slot's letter A-D in the FIBER fields, empty where it has none."""
        return LETTERS.get(self.slot, "") if self.kind == Kind.GPR and not self.definition else ""


@dataclass(frozen=True, slots=True)
class Control:
    """The control field, bits 125:105. Barriers are 0-5, 7 for none; `wait` has a bit for each of the six."""

    stall: int = 0
    yields: bool = False  # bit 109 is 0: the scheduler turns to another warp
    write_barrier: int = 7
    read_barrier: int = 7
    wait: int = 0
    reuse: int = 0  # bit 0: slot A, 1: B, 2: C, 3: D


@dataclass(frozen=True, slots=True)
class Fiber:
    """FIBER fields that are not part of an operand: X, and the bits of slots that the instruction does not have."""

    remote: bool = False  # X: source registers have absolute places


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `name` is None where the table does not know the opcode: then `extra` holds its fields."""

    opcode: int  # 13 bits: [11:0], and bit 91 as bit 12
    name: str | None = None
    modifiers: tuple[str, ...] = ()
    guard: Guard = field(default_factory=Guard)
    operands: tuple[Operand, ...] = ()
    control: Control = field(default_factory=Control)
    fiber: Fiber = field(default_factory=Fiber)
    extra: int = 0  # 128 bits: what the other fields do not tell, as difference (exclusive or) to their word

    @property
    def mnemonic(self) -> str:
        """Name and modifiers, such as `LDG.E.64`."""
        return ".".join((self.name or f"0x{self.opcode:x}", *self.modifiers))
