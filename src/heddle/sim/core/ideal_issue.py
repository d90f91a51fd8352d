"""Issue of one instruction of an idealised simulation (`issue` is its counterpart)."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.blocked import reuses
from heddle.sim.core.heap import Program, State
from heddle.sim.core.ideal_products import issue_product, note_group
from heddle.sim.core.ideal_window import kind_of, leave, open_piece
from heddle.sim.core.issue import NO_ROW, VARIABLE, advance_rings, issue_off, issue_unit, release_counters
from heddle.sim.core.layout import (
    ACCOUNT_OFF,
    FLAG_ADVANCE,
    H_ISSUED,
    H_LOG,
    H_PCS,
    H_READS,
    H_SHARE,
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
    Q_PORT,
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
    X_LATENCY,
    X_PORTS_REUSE,
)
from heddle.sim.core.layout_ideal import (
    H_IDEAL,
    IDEAL_ORDER,
    IDEAL_PRODUCTS,
    KIND_FENCE,
    KIND_ORDERED,
    KIND_UNNAMED,
    O_ROW,
    O_UNNAMED,
    Q_MATRIX_SPANS,
    W_IDEAL,
)
from heddle.sim.core.log import record, record_waits
from heddle.sim.core.rows import is_off, released_of, unit_of
from heddle.sim.core.tensor import accumulators_active
from heddle.sim.result import Stall

WGMMA, WGMMA_COMMIT, WGMMA_WAIT = int(Unit.WGMMA), int(Unit.WGMMA_COMMIT), int(Unit.WGMMA_WAIT)
SHARED, GLOBAL, TMEM_LOAD = int(Unit.SHARED), int(Unit.GLOBAL), int(Unit.TMEM_LOAD)
WAIT, SELECTED = int(Stall.WAIT), int(Stall.SELECTED)


def issue_ideal(M: State, P: Program, L: State, X: State, sub: int, warp: int, row: int, t: int) -> None:
    """Issue an instruction of the warp's window in cycle t."""
    kind = kind_of(M, P, row)
    ok, reason = M[warp + W_NEXT_OK], M[warp + W_REASON]
    M[H_ISSUED] += 1
    M[warp + W_ACCOUNT + SELECTED] += 1
    M[M[H_PCS] + P[row + P_ACCOUNT] + SELECTED] += 1
    M[warp + W_DONE] = t + 1
    M[warp + W_REASON] = WAIT
    off = is_off(M, P, warp, row)
    if M[H_LOG] == 2:
        record_waits(M, P, L, warp, row, t)
    if M[H_LOG] != 0:
        record(M, P, L, warp, row, LOG_ISSUE, t, t + 1, 1 if off else 0)
    following, done = row + P_WORDS, t + 2
    if off:
        M[M[H_PCS] + P[row + P_ACCOUNT] + ACCOUNT_OFF] += 1
        issue_off(M, P, warp, row, t)
    else:
        own = collect_operands(M, P, sub, warp, row, t)
        following = issue_acting(M, P, L, X, sub, warp, row, t, own)
        done = result_from(M, P, warp, row, t + own)
    M[sub + Q_LAST] = M[warp + W_BIT]
    M[sub + Q_LAST_ROW] = NO_ROW if off else row
    if following < 0:
        return
    if P[row + P_FLAGS] & FLAG_ADVANCE:
        advance_rings(M, P, warp, P[row + P_COLD])
    go_on(M, P, warp, row, following, kind, done, ok, reason)


def go_on(
    M: State, P: Program, warp: int, row: int, following: int, kind: int, done: int, ok: int, reason: int
) -> None:
    """Take an instruction out of the window, or open the next one behind a fence."""
    if M[H_IDEAL] & IDEAL_ORDER == 0:
        M[warp + W_ROW] = following
        return
    own = M[warp + W_IDEAL]
    if kind & KIND_UNNAMED != 0:
        M[own + O_UNNAMED] = max(M[own + O_UNNAMED], done)
    if kind & KIND_ORDERED == 0:
        M[warp + W_NEXT_OK] = ok  # its stall count is a matter of order, which is off
        M[warp + W_REASON] = reason
    leave(M, P, warp, (row - M[own + O_ROW]) // P_WORDS, done)
    if kind & KIND_FENCE != 0:
        open_piece(M, P, warp, following)


def collect_operands(M: State, P: Program, sub: int, warp: int, row: int, t: int) -> int:
    """Charge the read ports; return the cycles that the instruction's own bank conflicts cost."""
    ports, own = P[row + P_PORTS], P[row + P_OWN] & 255
    if reuses(M, P, sub, warp, row):
        ports, own = P[P[row + P_COLD] + X_PORTS_REUSE], (P[row + P_OWN] >> 8) & 255
    if ports == 0:
        return int(own)
    slowed = False
    if M[H_SHARE] != 0 and M[H_IDEAL] & IDEAL_PRODUCTS != 0:
        slowed = accumulators_active(M, M[sub + Q_MATRIX_SPANS], t)
    elif M[H_SHARE] != 0:
        slowed = accumulators_active(M, M[sub + Q_SM], t)
    now, bank = t << TICK_BITS, 0
    while ports != 0:
        reads = ports & 255
        if reads != 0:
            ticks = M[H_READS + reads] if slowed else reads << TICK_BITS
            M[sub + Q_PORT + bank] = max(M[sub + Q_PORT + bank], now) + ticks
        ports >>= 8
        bank += 1
    return int(own)


def issue_acting(M: State, P: Program, L: State, X: State, sub: int, warp: int, row: int, t: int, own: int) -> int:
    """Take the pipe, release counters, have the unit's effect; return the next row, -1 at the end of the warp."""
    pipe = P[row + P_PIPE]
    pipe += sub if pipe < S_PIPE else M[sub + Q_SM]
    M[pipe] = max(M[pipe], t << TICK_BITS) + P[row + P_INITIATION]
    M[warp + W_NEXT_OK] = t + P[row + P_STALL] + own
    if released_of(P, row) != 0:
        release_counters(M, P, warp, row, t + own)
    unit = unit_of(P, row)
    if M[H_IDEAL] & IDEAL_PRODUCTS != 0 and unit in (WGMMA, WGMMA_COMMIT, WGMMA_WAIT):
        if unit == WGMMA:
            issue_product(M, P, L, sub, warp, row, t)
        else:
            note_group(M, P, warp, row, 1 if unit == WGMMA_WAIT else 0)
        return row + P_WORDS
    if unit > VARIABLE:
        return issue_unit(M, P, L, X, warp, row, t, own)
    return row + P_WORDS


def result_from(M: State, P: Program, warp: int, row: int, t: int) -> int:
    """Return the cycle from which the result of what has just issued is there; -n: with collective n - 1."""
    unit = unit_of(P, row)
    if unit <= VARIABLE:
        return int(t + P[P[row + P_COLD] + X_LATENCY])
    if unit == WGMMA and M[H_IDEAL] & IDEAL_PRODUCTS == 0:
        return int(-M[warp + W_MMA_COUNT])
    if unit in (WGMMA, SHARED, GLOBAL, TMEM_LOAD):
        return int(M[H_WRITTEN])
    return t
