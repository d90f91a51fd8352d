"""The window of a warp that issues out of order: a straight piece of code up to the next barrier or branch.

What an instruction reads is found by name once, when the program is prepared: its producers in the piece, or registers
from before it. So a register that is written again has a new name there, and only true dependences are left.
"""

from __future__ import annotations

from heddle.sim.core.bits import bit
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import COLLECTIVES, G_END, G_FORMED, INF, P_WORDS, W_GROUP, W_ROW
from heddle.sim.core.layout_ideal import (
    D_CHAIN,
    D_COUNT,
    D_INPUTS,
    D_NEEDS,
    D_PLACES,
    D_USERS,
    D_WORDS,
    D_WRITERS,
    H_I_PCS,
    H_I_ROOM,
    H_IDEAL,
    I_KIND,
    I_PIECE,
    I_WORDS,
    IDEAL_ORDER,
    KIND_ORDERED,
    O_CLOSED,
    O_HEAD,
    O_ORDERED,
    O_PIECE,
    O_READ,
    O_ROW,
    O_SOON,
    O_TABLES,
    O_VALUE,
    T_DONE,
    T_ISSUED,
    T_KNOWN,
    T_LATE,
    T_LEFT,
    T_WHEN,
    W_IDEAL,
    WRITER_WORDS,
)


def table(M: State, own: int, which: int) -> int:
    """Return the address of one of the tables of a warp's record."""
    return int(own + O_TABLES + which * M[H_I_ROOM])


def kind_of(M: State, P: Program, row: int) -> int:
    """Return the KIND_* of an instruction."""
    return int(P[M[H_I_PCS] + row // P_WORDS * I_WORDS + I_KIND])


def is_ordered(M: State, P: Program, row: int) -> bool:
    """Tell whether an instruction keeps its place among its like."""
    return kind_of(M, P, row) & KIND_ORDERED != 0


def end_of(M: State, warp: int, n: int) -> int:
    """Return the cycle in which the n-th collective of the warp's group (from 1) is complete, INF if not known."""
    group = M[warp + W_GROUP]
    formed = M[group + G_FORMED]
    if n > formed:
        return INF
    return int(M[group + G_END + ((n - 1) & (COLLECTIVES - 1))]) if n > formed - COLLECTIVES else 0


def begin(M: State, P: Program, warp: int) -> None:
    """A warp starts: nothing has issued, and no register holds anything up."""
    own = M[warp + W_IDEAL]
    for k in range(O_TABLES):
        M[own + k] = 0
    if M[H_IDEAL] & IDEAL_ORDER != 0:
        open_piece(M, P, warp, M[warp + W_ROW])


def close_piece(M: State, P: Program, warp: int) -> None:
    """All of the piece has issued: registers have the values of their last writers."""
    own = M[warp + W_IDEAL]
    piece = M[own + O_PIECE]
    if piece == 0:
        return
    writers = P[piece + D_WRITERS]
    done = table(M, own, T_DONE)
    for k in range(P[writers]):
        at = writers + 1 + WRITER_WORDS * k
        M[own + O_VALUE + P[at]] = M[done + P[at + 1]]
        M[own + O_READ + P[at]] = P[at + 2]


def open_piece(M: State, P: Program, warp: int, row: int) -> None:
    """Let the warp go on with the piece that starts at `row`."""
    close_piece(M, P, warp)
    own = M[warp + W_IDEAL]
    piece = P[M[H_I_PCS] + row // P_WORDS * I_WORDS + I_PIECE]
    M[own + O_PIECE] = piece
    M[own + O_ROW] = row
    M[own + O_HEAD] = 0
    M[own + O_CLOSED] = 1
    M[own + O_SOON] = 0
    M[warp + W_ROW] = row
    for i in range(P[piece + D_COUNT]):
        enter(M, P, warp, own, piece + D_PLACES + i * D_WORDS, i)
    M[own + O_ORDERED] = next_ordered(M, P, own, 0)


def enter(M: State, P: Program, warp: int, own: int, place: int, i: int) -> None:
    """Look up what the i-th instruction of a piece reads from before it."""
    when, late = 0, 0
    inputs, chain = P[place + D_INPUTS], P[place + D_CHAIN]
    for k in range(P[inputs]):
        value = M[own + O_VALUE + P[inputs + 1 + k]]
        if value < 0:
            late = max(late, -value)
        else:
            when = max(when, value)
    for k in range(P[chain]):
        if M[own + O_READ + P[chain + 1 + k]] == 0:
            when = max(when, M[own + O_VALUE + P[chain + 1 + k]])
    needs = P[place + D_NEEDS]
    M[table(M, own, T_WHEN) + i] = when
    M[table(M, own, T_LATE) + i] = late
    M[table(M, own, T_LEFT) + i] = needs
    M[table(M, own, T_ISSUED) + i] = 0
    if i & 63 == 0:
        M[table(M, own, T_KNOWN) + (i >> 6)] = 0
    if needs == 0:
        M[table(M, own, T_KNOWN) + (i >> 6)] |= bit(i & 63)


def next_ordered(M: State, P: Program, own: int, i: int) -> int:
    """Return the place of the first ordered instruction from place i on, the length of the piece if there is none."""
    count = P[M[own + O_PIECE] + D_COUNT]
    while i < count and not is_ordered(M, P, M[own + O_ROW] + i * P_WORDS):
        i += 1
    return int(i)


def value_from(M: State, warp: int, own: int, i: int) -> int:
    """Return the cycle from which all that the i-th instruction reads is there, INF if that is not known."""
    late = M[table(M, own, T_LATE) + i]
    when = table(M, own, T_WHEN) + i
    if late != 0:
        end = end_of(M, warp, late)
        if end >= INF:
            return INF
        M[when] = max(M[when], end)
        M[table(M, own, T_LATE) + i] = 0
    return int(M[when])


def leave(M: State, P: Program, warp: int, i: int, done: int) -> None:
    """The i-th instruction has issued; its result is there from cycle `done`, or with collective -done."""
    own = M[warp + W_IDEAL]
    issued, known = table(M, own, T_ISSUED), table(M, own, T_KNOWN)
    M[issued + i] = 1
    M[known + (i >> 6)] &= ~bit(i & 63)
    M[own + O_SOON] = 0
    M[table(M, own, T_DONE) + i] = done
    users = P[M[own + O_PIECE] + D_PLACES + i * D_WORDS + D_USERS]
    for k in range(P[users]):
        j = P[users + 1 + k]
        if done < 0:
            M[table(M, own, T_LATE) + j] = max(M[table(M, own, T_LATE) + j], -done)
        else:
            M[table(M, own, T_WHEN) + j] = max(M[table(M, own, T_WHEN) + j], done)
        M[table(M, own, T_LEFT) + j] -= 1
        if M[table(M, own, T_LEFT) + j] == 0:
            M[known + (j >> 6)] |= bit(j & 63)
    if i == M[own + O_ORDERED]:
        M[own + O_ORDERED] = next_ordered(M, P, own, i + 1)
    head = M[own + O_HEAD]
    count = P[M[own + O_PIECE] + D_COUNT]
    while head < count and M[issued + head] != 0:
        head += 1
    M[own + O_HEAD] = head
    M[warp + W_ROW] = M[own + O_ROW] + head * P_WORDS
