"""DEPBAR.BIND and DEPBAR.BIT: what changes the bits beside an instruction's own registers (fiber.md, section 3)."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp


class BindUnit(UnitModel):
    """BIND: kept with the weft until its next instruction issues."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        warp.bound = instruction.bind


class BusyBitUnit(UnitModel):
    """BUSY_BIT: sets or clears one bit of a register group."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        assert warp.cta.thread is not None  # the verifier refuses DEPBAR.BIT where there are no bits
        warp.cta.thread.change_bit(warp, instruction, cycle)
