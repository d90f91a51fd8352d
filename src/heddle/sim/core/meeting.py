"""SETFIBER: wefts arrive and wait until all live ones of the FIBER-thread are there (fiber.md, section 4)."""

from __future__ import annotations

from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    C_ARRIVED,
    C_FIRST,
    C_LIVE,
    C_MEETS,
    C_POOL_REST,
    C_POOL_UNKNOWN,
    ERROR_MEETING,
    EV_MEET,
    H_BITS,
    H_CONTEXTS,
    H_ERROR,
    H_WARPS_PER_CTA,
    ST_DEAD,
    ST_MEET,
    W_CTA,
    W_ROW,
    W_STATE,
)
from heddle.sim.core.layout_fiber import H_FAULT, Y_FIBERS
from heddle.sim.core.registers import fiber_row


def weft_of(M: State, cta: int, index: int) -> int:
    """Return the context of a weft of a FIBER-thread."""
    return int(M[M[H_CONTEXTS] + M[cta + C_FIRST] + index])


def asked(M: State, P: Program, warp: int) -> int:
    """Return what a weft's SETFIBER asks for: wefts << 1 | all_scope."""
    return int(P[fiber_row(M, M[warp + W_ROW]) + Y_FIBERS])


def check_meeting(M: State, P: Program, cta: int, t: int) -> None:
    """If all live wefts have come and nothing is in flight that must end first, let the meeting take place."""
    if M[cta + C_LIVE] == 0 or M[cta + C_ARRIVED] < M[cta + C_LIVE] or M[cta + C_MEETS] != 0:
        return
    wanted = -1
    for i in range(M[H_WARPS_PER_CTA]):
        warp = weft_of(M, cta, i)
        if M[warp + W_STATE] != ST_DEAD:
            if wanted >= 0 and asked(M, P, warp) != wanted:
                M[H_ERROR] = ERROR_MEETING
                M[H_FAULT] = cta
            wanted = asked(M, P, warp)
    at = t
    if wanted & 1 and M[H_BITS] != 0:
        if M[cta + C_POOL_UNKNOWN] > 0:
            return
        at = max(t, M[cta + C_POOL_REST])
    M[cta + C_MEETS] = 1
    post(M, at + 1, EV_MEET, cta, 0, 0)


def arrive_at_meeting(M: State, P: Program, warp: int, t: int) -> None:
    """Conditions a to c of the weft's SETFIBER hold in cycle t."""
    cta = M[warp + W_CTA]
    M[warp + W_STATE] = ST_MEET
    M[cta + C_ARRIVED] += 1
    check_meeting(M, P, cta, t)
