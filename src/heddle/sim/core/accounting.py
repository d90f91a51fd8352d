"""Exact stall accounting without a per-cycle loop.

A warp's cycles are added to its account and to that of the pc it waits for when it changes state; `W_DONE` is the first
cycle that is not accounted yet. The sums are those of counting every cycle (docs/reference/engine.md, section 3).
"""

from __future__ import annotations

from heddle.sim.core.bits import cold, ctz, drop_lowest
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    H_LOG,
    H_PCS,
    INF,
    P_ACCOUNT,
    RUNS,
    W_ACCOUNT,
    W_AT_REST,
    W_CAUSE,
    W_DONE,
    W_FETCH,
    W_NEXT_OK,
    W_PENDING,
    W_REASON,
    W_ROW,
    W_RUN,
    W_RUNS,
)
from heddle.sim.core.rows import waits_of
from heddle.sim.result import Stall

NO_INSTRUCTION = int(Stall.NO_INSTRUCTION)


@cold
def note_run(M: State, warp: int, reason: int, begin: int) -> None:
    """Remember for the log that a warp has a state from a cycle on; what does not fit joins the last run."""
    runs = M[warp + W_RUNS]
    if runs > 0 and (M[warp + W_RUN + 2 * (runs - 1)] == reason or runs == RUNS):
        return
    M[warp + W_RUN + 2 * runs] = reason
    M[warp + W_RUN + 2 * runs + 1] = begin
    M[warp + W_RUNS] = runs + 1


def credit(M: State, P: Program, warp: int, reason: int, until: int) -> None:
    """Account the warp's cycles up to `until` (excluded) to one reason."""
    done = M[warp + W_DONE]
    if until > done:
        if M[H_LOG] == 2:
            note_run(M, warp, reason, done)
        M[warp + W_ACCOUNT + reason] += until - done
        M[M[H_PCS] + P[M[warp + W_ROW] + P_ACCOUNT] + reason] += until - done
        M[warp + W_DONE] = until


def credit_own_waits(M: State, P: Program, warp: int, until: int) -> None:
    """Account up to `until` what conditions a to c held up: the instruction line, next_ok, then counters in order."""
    if M[warp + W_FETCH] > M[warp + W_DONE]:
        credit(M, P, warp, NO_INSTRUCTION, min(until, M[warp + W_FETCH]))
    if M[warp + W_NEXT_OK] > M[warp + W_DONE]:
        credit(M, P, warp, M[warp + W_REASON], min(until, M[warp + W_NEXT_OK]))
    if waits_of(P, M[warp + W_ROW]) != 0:
        credit_counters(M, P, warp, until)


def credit_counters(M: State, P: Program, warp: int, until: int) -> None:
    """Account up to `until` what the counters held up, in order."""
    mask = waits_of(P, M[warp + W_ROW])
    while mask != 0:
        k = ctz(mask)
        mask = drop_lowest(mask)
        rest = M[warp + W_AT_REST + k]
        if M[warp + W_PENDING + k] != 0:
            rest = INF
        if rest > M[warp + W_DONE]:
            credit(M, P, warp, M[warp + W_CAUSE + k], min(until, rest))


def own_ready(M: State, P: Program, warp: int) -> int:
    """Return the cycle from which conditions a to c hold, INF if an operation's end is not known yet."""
    ready = max(M[warp + W_NEXT_OK], M[warp + W_FETCH])
    mask = waits_of(P, M[warp + W_ROW])
    while mask != 0:
        k = ctz(mask)
        mask = drop_lowest(mask)
        if M[warp + W_PENDING + k] != 0:
            return INF
        ready = max(ready, M[warp + W_AT_REST + k])
    return int(ready)
