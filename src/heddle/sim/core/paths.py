"""Paths of a warp whose fibers have parted: one runs, the other waits at a row (SPLIT, REJOIN, YIELD)."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.control import loop_count
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import FIBERS, P_WORDS, W_NEXT_OK, W_OTHER, W_RANK, W_REASON, X_LATENCY, X_TARGET
from heddle.sim.core.rows import unit_of
from heddle.sim.result import Stall

SPLIT, REJOIN, BRANCH_RESOLVING = int(Unit.SPLIT), int(Unit.REJOIN), int(Stall.BRANCH_RESOLVING)


def jump(M: State, P: Program, warp: int, row: int, cold: int, t: int) -> int:
    """Go on at a row: as late as after a taken branch."""
    M[warp + W_NEXT_OK] = max(M[warp + W_NEXT_OK], t + P[cold + X_LATENCY])
    M[warp + W_REASON] = BRANCH_RESOLVING
    return row


def split(M: State, P: Program, warp: int, row: int, cold: int, t: int) -> int:
    """BRA.P: the fibers of the role below the count go on, the others branch."""
    stay = loop_count(M, P, warp, cold) - FIBERS * M[warp + W_RANK]
    if stay <= 0:
        return jump(M, P, warp, P[cold + X_TARGET], cold, t)
    if stay < FIBERS:
        M[warp + W_OTHER] = P[cold + X_TARGET]
    return row + P_WORDS


def next_path(M: State, P: Program, warp: int, row: int, cold: int, t: int) -> int:
    """BRA.P, BSYNC, YIELD: note which path waits where and return the row at which the warp goes on."""
    following, other = row + P_WORDS, M[warp + W_OTHER]
    unit = unit_of(P, row)
    if unit == SPLIT:
        return split(M, P, warp, row, cold, t)
    if other != 0:
        M[warp + W_OTHER] = 0 if unit == REJOIN else following
        return jump(M, P, warp, other, cold, t)
    if unit == REJOIN and P[cold + X_TARGET] != following:
        return jump(M, P, warp, P[cold + X_TARGET], cold, t)
    return following
