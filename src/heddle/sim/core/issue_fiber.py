"""Issue of one instruction of a weft, in programs of mode fiber (`issue` is its counterpart)."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.arbiter import take_local_ports
from heddle.sim.core.bit_changes import issue_bit, issue_bits, issue_simple
from heddle.sim.core.blocked import reuses, settle_others
from heddle.sim.core.control import fetch
from heddle.sim.core.heap import Program, State
from heddle.sim.core.issue import NO_ROW, SPLIT, VARIABLE, advance_rings, issue_off, issue_unit, release_counters
from heddle.sim.core.layout import (
    ACCOUNT_OFF,
    FLAG_ADVANCE,
    FLAG_REMOTE,
    H_BITS,
    H_FETCH,
    H_ISSUED,
    H_LOG,
    H_PCS,
    H_READ,
    H_WRITTEN,
    LOG_ISSUE,
    P_ACCOUNT,
    P_COLD,
    P_FLAGS,
    P_INITIATION,
    P_OWN,
    P_PIPE,
    P_PORTS,
    P_STALL,
    P_WORDS,
    Q_LAST,
    Q_LAST_ROW,
    Q_SM,
    S_PIPE,
    TICK_BITS,
    W_ACCOUNT,
    W_BIT,
    W_DONE,
    W_MMA_COUNT,
    W_NEXT_OK,
    W_REASON,
    W_ROW,
    X_PORTS_REUSE,
)
from heddle.sim.core.layout_fiber import FLAG_MATRIX, FLAG_SIMPLE, FLAG_TESTS, H_X_OWN, O_NUMBER, Y_FLAGS, Y_LATENCY
from heddle.sim.core.log import record, record_waits
from heddle.sim.core.matrix_ops import begin_op, end_op
from heddle.sim.core.registers import fiber_row
from heddle.sim.core.rows import is_off, released_of, unit_of
from heddle.sim.core.wake import place
from heddle.sim.core.weft_matrix import issue_weft_matrix
from heddle.sim.result import Stall

WEFT_MMA, BUSY_BIT, WGMMA, EXIT = int(Unit.WEFT_MMA), int(Unit.BUSY_BIT), int(Unit.WGMMA), int(Unit.EXIT)
WAIT, SELECTED = int(Stall.WAIT), int(Stall.SELECTED)


def issue_weft(M: State, P: Program, L: State, X: State, sub: int, warp: int, t: int) -> None:
    """Issue the weft's instruction in cycle t; an X instruction has its ports already."""
    row = M[warp + W_ROW]
    account = M[H_PCS] + P[row + P_ACCOUNT]
    M[H_ISSUED] += 1
    M[warp + W_ACCOUNT + SELECTED] += 1
    M[account + SELECTED] += 1
    M[warp + W_DONE] = t + 1
    M[warp + W_REASON] = WAIT
    off = is_off(M, P, warp, row)
    if M[H_LOG] == 2:
        record_waits(M, P, L, warp, row, t)
    if M[H_LOG] != 0:
        record(M, P, L, warp, row, LOG_ISSUE, t, t + 1, 1 if off else 0)
    following = row + P_WORDS
    if off:
        M[account + ACCOUNT_OFF] += 1
        issue_off(M, P, warp, row, t)
    else:
        following = issue_acting(M, P, L, X, sub, warp, row, t)
    M[sub + Q_LAST] = M[warp + W_BIT]
    M[sub + Q_LAST_ROW] = NO_ROW if off else row
    if following < 0:
        return
    if P[row + P_FLAGS] & FLAG_ADVANCE:
        advance_rings(M, P, warp, P[row + P_COLD])
    M[warp + W_ROW] = following
    if M[H_FETCH] != 0:
        fetch(M, P, warp, following, t)
    place(M, P, sub, warp, t)


def own_conflicts(M: State, P: Program, sub: int, warp: int, row: int, t: int) -> int:
    """Take the ports of an instruction that is no X instruction; return the cycles that its own conflicts cost."""
    if P[row + P_FLAGS] & FLAG_REMOTE:
        return int(M[H_X_OWN])
    ports, own = P[row + P_PORTS], P[row + P_OWN] & 255
    if reuses(M, P, sub, warp, row):
        ports, own = P[P[row + P_COLD] + X_PORTS_REUSE], (P[row + P_OWN] >> 8) & 255
    if ports != 0:
        take_local_ports(M, sub, ports, t)
    return int(own)


def issue_acting(M: State, P: Program, L: State, X: State, sub: int, warp: int, row: int, t: int) -> int:
    """Issue an instruction in which this weft acts; return the next row, -1 at the end of the weft."""
    fiber, unit = fiber_row(M, row), unit_of(P, row)
    flags = P[fiber + Y_FLAGS]
    own = own_conflicts(M, P, sub, warp, row, t)
    pipe = P[row + P_PIPE]
    if pipe < S_PIPE:
        pipe += sub
    else:
        settle_others(M, P, sub, t)
        pipe += M[sub + Q_SM]
    M[pipe] = max(M[pipe], t << TICK_BITS) + P[row + P_INITIATION]
    M[warp + W_NEXT_OK] = t + P[row + P_STALL] + own
    if released_of(P, row) != 0:
        release_counters(M, P, warp, row, t + own)
    read, written = t + own + 2, t + own + P[fiber + Y_LATENCY]
    if flags & FLAG_SIMPLE:
        if M[H_BITS] != 0:
            issue_simple(M, P, warp, fiber, t, read, max(written, read))
        return int(row + P_WORDS)
    if unit == WEFT_MMA:
        issue_weft_matrix(M, P, L, warp, row, t)
        return int(row + P_WORDS)
    M[H_WRITTEN] = written
    M[H_READ] = read
    bits = M[H_BITS] != 0 and unit != EXIT
    op = begin_op(M, P, warp, row, t) if bits and flags & FLAG_MATRIX else 0
    following = row + P_WORDS
    if unit == WGMMA and op != 0:
        M[op + O_NUMBER] = M[warp + W_MMA_COUNT]
    if VARIABLE < unit <= EXIT or unit >= SPLIT:
        following = issue_unit(M, P, L, X, warp, row, t, own)
    if bits and unit != WGMMA:
        change_bits(M, P, warp, row, op, flags, t)
    return int(following)


def change_bits(M: State, P: Program, warp: int, row: int, op: int, flags: int, t: int) -> None:
    """Change the bits of an instruction that has just issued, and whose end is known."""
    if op != 0:
        end_op(M, P, op, M[H_READ], M[H_WRITTEN], t)
    elif flags & FLAG_TESTS:
        issue_bits(M, P, warp, fiber_row(M, row), t, M[H_READ], M[H_WRITTEN])
    elif unit_of(P, row) == BUSY_BIT:
        issue_bit(M, P, warp, fiber_row(M, row), t)
