"""One cycle of one SM in an idealised simulation (`step` is its counterpart): every resident warp is looked at."""

from __future__ import annotations

from heddle.sim.core.accounting import credit
from heddle.sim.core.bits import bit, ctz, drop_lowest
from heddle.sim.core.heap import Program, State
from heddle.sim.core.ideal_conditions import condition_from, free_from, own_from, registers_from
from heddle.sim.core.ideal_issue import issue_ideal
from heddle.sim.core.ideal_window import kind_of, table, value_from
from heddle.sim.core.layout import (
    G_FORMED,
    INF,
    P_WORDS,
    Q_WARPS,
    Q_WORDS,
    S_QUARTERS,
    ST_DEAD,
    SUBPARTITIONS,
    W_FETCH,
    W_GROUP,
    W_HELD,
    W_NEXT_OK,
    W_REASON,
    W_ROW,
    W_STATE,
    W_SURE,
    W_WORDS,
)
from heddle.sim.core.layout_ideal import (
    D_COUNT,
    H_I_CONTEXTS,
    H_IDEAL,
    IDEAL_ORDER,
    IDEAL_PRODUCTS,
    KIND_FENCE,
    KIND_MATRIX,
    KIND_ORDERED,
    KIND_UNNAMED,
    O_CLOSED,
    O_FORMED,
    O_FOUND,
    O_HEAD,
    O_ORDERED,
    O_PIECE,
    O_ROW,
    O_SOON,
    O_UNNAMED,
    T_KNOWN,
    T_LATE,
    W_IDEAL,
)
from heddle.sim.core.step import choose
from heddle.sim.result import Stall

NO_INSTRUCTION, WAIT, NOT_SELECTED = int(Stall.NO_INSTRUCTION), int(Stall.WAIT), int(Stall.NOT_SELECTED)


def in_order(M: State, P: Program, sub: int, warp: int, t: int) -> int:
    """Test the warp's next instruction; return the cycle from which what fails holds, t if it could issue."""
    row = M[warp + W_ROW]
    until = own_from(M, P, warp, row, t)
    if until <= t and M[H_IDEAL] & IDEAL_PRODUCTS != 0:
        until = registers_from(M, P, warp, row)
        M[warp + W_HELD] = WAIT
    if until <= t:
        until = condition_from(M, P, warp, row, t)
    return until if until > t else free_from(M, P, sub, warp, row, kind_of(M, P, row), t)


def place_from(M: State, P: Program, sub: int, warp: int, own: int, i: int, t: int) -> int:
    """Test the i-th instruction of the window; return the cycle from which what fails holds, t if it could issue."""
    row = M[own + O_ROW] + i * P_WORDS
    until = value_from(M, warp, own, i)
    if until > t:
        M[warp + W_HELD] = WAIT
        return until
    kind = kind_of(M, P, row)
    if kind & KIND_ORDERED != 0:
        until = own_from(M, P, warp, row, t)
        if until <= t and kind & KIND_UNNAMED == 0 and M[own + O_UNNAMED] > t:
            M[warp + W_HELD] = WAIT
            return int(M[own + O_UNNAMED])
        if until <= t:
            until = condition_from(M, P, warp, row, t)
        if until > t:
            return until
    return free_from(M, P, sub, warp, row, kind, t)


def may_come(M: State, P: Program, own: int, i: int) -> bool:
    """Tell whether an instruction keeps to the order of its like, and a fence to that of all."""
    kind = kind_of(M, P, M[own + O_ROW] + i * P_WORDS)
    if kind & KIND_ORDERED == 0:
        return True
    return bool(i == M[own + O_ORDERED] and (kind & KIND_FENCE == 0 or i == M[own + O_HEAD]))


def depends_on_others(M: State, P: Program, own: int, i: int, until: int) -> bool:
    """Tell whether an event or the issue of another warp may let an instruction issue before the cycle `until`."""
    if M[H_IDEAL] & IDEAL_PRODUCTS != 0 and kind_of(M, P, M[own + O_ROW] + i * P_WORDS) & KIND_MATRIX != 0:
        return True
    return bool(until >= INF and M[table(M, own, T_LATE) + i] == 0)


def look_at(M: State, P: Program, sub: int, warp: int, t: int) -> int:
    """Find the oldest instruction of a warp that could issue in cycle t.

    Returns its row, or -1; then W_HELD has what holds up the oldest one, and W_SURE the next cycle to look again.
    """
    if M[warp + W_FETCH] > t:
        M[warp + W_HELD], M[warp + W_SURE] = NO_INSTRUCTION, M[warp + W_FETCH]
        return -1
    if M[H_IDEAL] & IDEAL_ORDER == 0:
        until = in_order(M, P, sub, warp, t)
        M[warp + W_SURE] = until
        return -1 if until > t else int(M[warp + W_ROW])
    own = M[warp + W_IDEAL]
    if M[own + O_CLOSED] != 0 and M[warp + W_NEXT_OK] > t:
        M[warp + W_HELD], M[warp + W_SURE] = M[warp + W_REASON], M[warp + W_NEXT_OK]
        return -1
    M[own + O_CLOSED] = 0
    formed = M[M[warp + W_GROUP] + G_FORMED] if M[warp + W_GROUP] != 0 else 0
    if M[own + O_SOON] > t and M[own + O_FORMED] == formed:
        M[warp + W_SURE] = M[own + O_SOON]
        return -1
    M[own + O_FORMED] = formed
    return scan(M, P, sub, warp, own, t)


def scan(M: State, P: Program, sub: int, warp: int, own: int, t: int) -> int:
    """Go through the window of a warp, oldest first (`look_at`)."""
    head, known = M[own + O_HEAD], table(M, own, T_KNOWN)
    count = P[M[own + O_PIECE] + D_COUNT]
    soon, again = INF, 0
    held = WAIT  # of a head whose producers have not issued
    for word in range(head >> 6, (count + 63) >> 6):
        rest = M[known + word]
        while rest != 0:
            i = (word << 6) + ctz(rest)
            rest = drop_lowest(rest)
            if may_come(M, P, own, i):
                until = place_from(M, P, sub, warp, own, i, t)
                if until <= t:
                    return int(M[own + O_ROW] + i * P_WORDS)
                if depends_on_others(M, P, own, i, until):
                    again = 1
                soon = min(soon, until)
                if i == head:
                    held = M[warp + W_HELD]
    M[warp + W_HELD], M[warp + W_SURE] = held, soon
    M[own + O_SOON] = 0 if again != 0 else soon
    return -1


def step_quarter(M: State, P: Program, L: State, X: State, sub: int, t: int) -> int:
    """Simulate cycle t of a subpartition; return the next cycle in which, by itself, something can happen here."""
    ready, soon = 0, INF
    for i in range(M[H_I_CONTEXTS]):
        warp = M[sub + Q_WARPS] + i * W_WORDS
        if M[warp + W_STATE] != ST_DEAD:
            credit(M, P, warp, M[warp + W_HELD], t)
            row = look_at(M, P, sub, warp, t)
            if row >= 0:
                ready |= bit(i)
                M[M[warp + W_IDEAL] + O_FOUND] = row
            else:
                soon = min(soon, M[warp + W_SURE])
    if ready == 0:
        return int(soon)
    chosen = choose(M, sub, ready, t)
    rest = ready
    while rest != 0:
        i = ctz(rest)
        rest = drop_lowest(rest)
        M[M[sub + Q_WARPS] + i * W_WORDS + W_HELD] = NOT_SELECTED
    warp = M[sub + Q_WARPS] + chosen * W_WORDS
    issue_ideal(M, P, L, X, sub, warp, M[M[warp + W_IDEAL] + O_FOUND], t)
    return t + 1


def step_ideal(M: State, P: Program, L: State, X: State, sm: int, t: int) -> int:
    """Simulate cycle t of an SM; return the next cycle in which, by itself, something can happen there."""
    soon = INF
    for i in range(SUBPARTITIONS):
        sub = sm + S_QUARTERS + ((t + i) & (SUBPARTITIONS - 1)) * Q_WORDS
        soon = min(soon, step_quarter(M, P, L, X, sub, t))
    return int(soon)
