"""What goes wrong in programs with FIBER features: errors of the core in words, and warnings of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.errors import UserError
from heddle.ir.warp_fiber import TENSOR_COLUMNS
from heddle.sim.core import layout as c
from heddle.sim.core import layout_fiber as f

if TYPE_CHECKING:
    from heddle.sim.session import Sim

SHOWN = 8  # wefts in one message
GROUPS_HINT = "each of the four wefts of a group issues its group instructions in one order"
WEFTS_OF_GROUP = 4


def register_name(index: int) -> str:
    """Return the name of a register by its place in the sequence of all (`layout_fiber.PLACE_NUMBERS`)."""
    place, number = divmod(index, f.PLACE_NUMBERS)
    if number < f.TENSOR_FIRST:
        return f"R{number} of subpartition {place}"
    first = TENSOR_COLUMNS * (number - f.TENSOR_FIRST)
    return f"columns {first} to {first + TENSOR_COLUMNS - 1} of subpartition {place}"


def warnings(sim: Sim) -> list[str]:
    """Return a sentence for each FIBER-thread that ended with data that nobody had consumed."""
    state, lines = sim.state, []
    total, room = int(state[f.H_WARNING_COUNT]), int(state[f.H_WARNING_ROOM])
    for number in range(min(total, room)):
        at = int(state[f.H_WARNINGS]) + number * f.N_WORDS
        count = int(state[at + f.N_COUNT])
        shown = range(min(count, f.NAMED_REGISTERS))
        named = ", ".join(register_name(int(state[at + f.N_REGISTER + i])) for i in shown)
        more = f" and {count - f.NAMED_REGISTERS} more" if count > f.NAMED_REGISTERS else ""
        lines.append(
            f"SM {int(state[at + f.N_SM])}, slot {int(state[at + f.N_SLOT])}: "
            f"a datum that nobody consumed is left in {named}{more}"
        )
    if total > room:
        lines.append(f"data that nobody consumed are left in {total - room} more FIBER-threads")
    return lines


def _wefts(sim: Sim, cta: int) -> list[int]:
    """Return the addresses of the contexts of a FIBER-thread."""
    first = int(sim.state[c.H_CONTEXTS] + sim.state[cta + c.C_FIRST])
    return [int(at) for at in sim.state[first : first + sim.program.warps_per_cta]]


def fault(sim: Sim, error: int) -> UserError | None:
    """Return the error that an error word of a FIBER program stands for; None if it is another one."""
    state = sim.state
    if error == c.ERROR_MEETING:
        live = [at for at in _wefts(sim, int(state[f.H_FAULT])) if state[at + c.W_STATE] != c.ST_DEAD]
        places = ", ".join(
            f"weft {int(state[at + c.W_WARP])} at pc {int(state[at + c.W_ROW]) // c.P_WORDS}" for at in live
        )
        return UserError(f"wefts meet at SETFIBERs that differ in fibers or scope: {places}")
    if error == c.ERROR_GROUP:
        op = int(state[f.H_FAULT])
        first = int(state[state[op + f.O_WARP] + c.W_WARP]) // WEFTS_OF_GROUP * WEFTS_OF_GROUP
        return UserError(
            f"group instruction {int(state[op + f.O_GROUP])} of wefts {first} to {first + 3} differs between them at "
            f"pc {int(state[op + f.O_ROW]) // c.P_WORDS}: all four need one opcode, shape, form and type"
        )
    if error == c.ERROR_OPERATIONS:
        return UserError(f"a weft has more than {f.OPS} matrix instructions in flight; the engine follows that many")
    return None


def unfinished(sim: Sim) -> str:
    """Say which operations of ended FIBER-threads never started; empty if there are none."""
    state, extent, late = sim.state, sim.extent, []
    if not state[c.H_BITS] or not state[c.H_DRAINING]:
        return ""
    for sm, slot, warp in extent.contexts():
        at = extent.warp(sm, slot, warp)
        for n in range(int(state[at + c.W_OP_HEAD]), int(state[at + c.W_OP_TAIL])):
            op = int(state[at + c.W_OPS]) + n % f.OPS * f.O_WORDS
            if state[op + f.O_END] >= c.INF:
                late.append(f"weft {warp} at pc {int(state[op + f.O_ROW]) // c.P_WORDS}")
    return f"all wefts have ended, but these operations never started: {', '.join(late[:SHOWN])}" if late else ""
