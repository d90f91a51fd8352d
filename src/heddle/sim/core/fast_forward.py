"""Exact fast-forward through a periodic steady state.

Whenever the anchor warp takes its loop's branch, the relative state (`relative`) is compared in full with a stored
one; the stored one is renewed at growing distances (Brent's method). If they are equal, the cycles between them are a
period, and as many periods are skipped as no loop count, no work item and no memory record forbids: times move on
(`shift`), counters and accounts grow by what the last period added. Nothing is approximated.

The buffer `F`: a header (F_), the counters at the stored state, the stored state, the current state.
"""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.bits import cold
from heddle.sim.core.clears import make_changes
from heddle.sim.core.flush import flush_accounts
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    H_ANCHOR,
    H_BITS,
    H_HEAP_COUNT,
    H_ISSUED,
    H_PC_WORDS,
    H_PCS,
    H_SM,
    H_SMS,
    H_TIME,
    H_WARP_COUNT,
    H_WARPS,
    LEVELS,
    P_ACCOUNT,
    P_COLD,
    P_WORDS,
    REASONS,
    S_MATRIX_BUSY,
    S_SHARED_BYTES,
    S_WORDS,
    ST_DEAD,
    W_ACCOUNT,
    W_BOUND,
    W_COUNTER,
    W_CTA,
    W_ENTRY,
    W_EXITS,
    W_ITEM_INDEX,
    W_ITEM_NUMBER,
    W_ITEM_ORDINAL,
    W_STATE,
    W_WORDS,
    X_LEVEL,
    X_STEP,
    X_STREAM,
)
from heddle.sim.core.layout_fiber import FIBER_COUNTS, H_CROSSED
from heddle.sim.core.memory_forward import memory_repeats, memory_skip
from heddle.sim.core.memory_layout import COUNTERS as MEMORY_COUNTERS
from heddle.sim.core.memory_layout import COUNTERS_END as MEMORY_COUNTERS_END
from heddle.sim.core.phases import copy_phases, phases_allow, repeat_phases
from heddle.sim.core.relative import relative_state
from heddle.sim.core.rows import unit_of
from heddle.sim.core.shared import block_of, step_of
from heddle.sim.core.shift import shift_state
from heddle.sim.result import Stall

F_STORED = 0  # 1: there is a stored state
F_CYCLE = 1  # its cycle
F_LENGTH = 2
F_POWER = 3  # states to look at before the stored one is renewed
F_SINCE = 4
F_ITEM = 5  # work item and its number that the anchor was in
F_NUMBER = 6
F_LOOKS = 7  # states looked at in this item
F_LAST = 8  # warp instructions issued at the last look
F_SKIPPED = 9  # cycles skipped so far
F_REPEATS = 10  # skips so far
F_COUNTS = 11  # address of the counters at the stored state
F_STATE = 12  # address of the stored state
F_CURRENT = 13
F_ROOM = 14  # words of a state
F_LIST = 32  # last LIST skips: begin, end, times
LIST = 2048
F_WORDS = 6208

SPACING = 500  # warp instructions between two looks at least, so that looking costs little
KEEN = 64  # looks in an item before they become rare
RARE, BURST = 256, 32  # then BURST of every RARE
EVENTS = 1024  # most events of a state that is looked at

BULK_STORE, GLOBAL, BULK_LOAD = int(Unit.BULK_STORE), int(Unit.GLOBAL), int(Unit.BULK_LOAD)
EXIT, SELECTED = int(Unit.EXIT), int(Stall.SELECTED)


def copy_counts(M: State, P: Program, X: State, F: State, at: int) -> int:
    """Write all that grows steadily: loop counters, exits and accounts of warps, accounts of pcs, SMs, memory."""
    for i in range(M[H_WARP_COUNT]):
        warp = M[H_WARPS] + i * W_WORDS
        for k in range(2 * LEVELS):
            F[at + k] = M[warp + W_COUNTER + k]
        at += 2 * LEVELS
        for k in range(REASONS):
            F[at + k] = M[warp + W_ACCOUNT + k]
        at += REASONS
    for k in range(M[H_PC_WORDS]):
        F[at + k] = M[M[H_PCS] + k]
    at += M[H_PC_WORDS]
    for i in range(M[H_SMS]):
        F[at] = M[M[H_SM] + i * S_WORDS + S_SHARED_BYTES]
        F[at + 1] = M[M[H_SM] + i * S_WORDS + S_MATRIX_BUSY]
        at += 2
    for k in range(FIBER_COUNTS):
        F[at + k] = M[H_CROSSED + k]
    at += FIBER_COUNTS
    at = copy_phases(M, F, at)
    for k in range(MEMORY_COUNTERS, MEMORY_COUNTERS_END):
        F[at] = X[k]
        at += 1
    return at


def place_of_phases(M: State, F: State) -> int:
    """Return where the counters have the phases."""
    warps = M[H_WARP_COUNT] * (2 * LEVELS + REASONS)
    return int(F[F_COUNTS] + warps + M[H_PC_WORDS] + 2 * M[H_SMS] + FIBER_COUNTS)


def loops_allow(M: State, F: State, limit: int) -> int:
    """Return how many periods no loop's end forbids."""
    at = F[F_COUNTS]
    for i in range(M[H_WARP_COUNT]):
        warp = M[H_WARPS] + i * W_WORDS
        if M[warp + W_STATE] != ST_DEAD:
            for level in range(LEVELS):
                grown = M[warp + W_COUNTER + level] - F[at + level]
                if grown != 0:
                    if grown < 0 or M[warp + W_EXITS + level] != F[at + LEVELS + level]:
                        return 0
                    limit = min(limit, (M[warp + W_BOUND + level] - 1 - M[warp + W_COUNTER + level]) // grown)
        at += 2 * LEVELS + REASONS
    return limit


def row_allows(M: State, X: State, P: Program, warp: int, cold: int, grown: int, t: int, limit: int) -> int:
    """Return for how many periods the accesses of one instruction repeat, if its loop grows by `grown` in a period.

    Whether the next access is at this count or has been made already depends on where in the loop the warp is; one
    period is kept back so that both are covered.
    """
    step = step_of(M, P, warp, cold)
    repeats = memory_repeats(
        X,
        t,
        P[cold + X_STREAM],
        M[warp + W_ITEM_ORDINAL],
        step,
        grown,
        block_of(M, P, warp, cold),
        P[cold + X_STEP],
        limit + 1,
    )
    return min(limit, max(repeats - 1, 0))


def executed(M: State, P: Program, F: State, row: int) -> bool:
    """Tell whether any warp has issued an instruction since the stored state."""
    at = F[F_COUNTS] + M[H_WARP_COUNT] * (2 * LEVELS + REASONS) + P[row + P_ACCOUNT] + SELECTED
    return bool(M[M[H_PCS] + P[row + P_ACCOUNT] + SELECTED] != F[at])


def memory_allows(M: State, P: Program, X: State, F: State, t: int, limit: int) -> int:
    """Return for how many periods all memory accesses repeat; warps of a role that are in step are asked once."""
    at = F[F_COUNTS]
    before = 0
    for i in range(M[H_WARP_COUNT]):
        warp = M[H_WARPS] + i * W_WORDS
        if M[warp + W_STATE] != ST_DEAD and (before == 0 or not in_step(M, warp, before)):
            before = warp
            row = M[warp + W_ENTRY]
            while unit_of(P, row) != EXIT and limit > 0:
                unit, cold = unit_of(P, row), P[row + P_COLD]
                if unit in (GLOBAL, BULK_LOAD, BULK_STORE) and executed(M, P, F, row):
                    level = P[cold + X_LEVEL]
                    grown = M[warp + W_COUNTER + level] - F[at + level]
                    if grown > 0:
                        limit = row_allows(M, X, P, warp, cold, grown, t, limit)
                row += P_WORDS
        at += 2 * LEVELS + REASONS
    return limit


def in_step(M: State, warp: int, other: int) -> bool:
    """Tell whether two warps are of one role and CTA and have the same loop counters."""
    if M[warp + W_ENTRY] != M[other + W_ENTRY] or M[warp + W_CTA] != M[other + W_CTA]:
        return False
    for level in range(LEVELS):
        if M[warp + W_COUNTER + level] != M[other + W_COUNTER + level]:
            return False
    return bool(M[warp + W_ITEM_INDEX] == M[other + W_ITEM_INDEX])


def grow(M: State, at: int, before: int, periods: int) -> None:
    """Add to a counter what `periods` further periods add."""
    M[at] += periods * (M[at] - before)


def skip(M: State, X: State, F: State, t: int, periods: int) -> None:
    """Jump over `periods` periods from cycle t."""
    cycles = periods * (t - F[F_CYCLE])
    at = F[F_COUNTS]
    for i in range(M[H_WARP_COUNT]):
        warp = M[H_WARPS] + i * W_WORDS
        for k in range(2 * LEVELS):
            grow(M, warp + W_COUNTER + k, F[at + k], periods)
        at += 2 * LEVELS
        for k in range(REASONS):
            grow(M, warp + W_ACCOUNT + k, F[at + k], periods)
        at += REASONS
    for k in range(M[H_PC_WORDS]):
        grow(M, M[H_PCS] + k, F[at + k], periods)
    at += M[H_PC_WORDS]
    for i in range(M[H_SMS]):
        grow(M, M[H_SM] + i * S_WORDS + S_SHARED_BYTES, F[at], periods)
        grow(M, M[H_SM] + i * S_WORDS + S_MATRIX_BUSY, F[at + 1], periods)
        at += 2
    for k in range(FIBER_COUNTS):
        grow(M, H_CROSSED + k, F[at + k], periods)
    at = repeat_phases(M, F, at + FIBER_COUNTS, periods)
    memory_skip(X, cycles, F, at, periods)
    shift_state(M, t, cycles)
    place = F_LIST + 3 * (F[F_REPEATS] % LIST)
    F[place] = F[F_CYCLE]
    F[place + 1] = t
    F[place + 2] = periods
    F[F_REPEATS] += 1
    F[F_SKIPPED] += cycles


def equal_states(F: State, length: int) -> bool:
    """Compare the current state with the stored one, word by word."""
    stored, current = F[F_STATE], F[F_CURRENT]
    k = 0
    while k < length and F[stored + k] == F[current + k]:
        k += 1
    return bool(length == F[F_LENGTH] and k == length)


def store_current(M: State, P: Program, X: State, F: State, t: int, length: int) -> None:
    """Keep the current state to compare later ones with."""
    F[F_CYCLE] = t
    F[F_LENGTH] = length
    F[F_STORED] = 1
    F[F_SINCE] = 0
    swap = F[F_STATE]
    F[F_STATE] = F[F_CURRENT]
    F[F_CURRENT] = swap
    copy_counts(M, P, X, F, F[F_COUNTS])


def begin_item(M: State, F: State, anchor: int) -> None:
    """Start anew when the anchor has gone on to another work item."""
    F[F_ITEM] = M[anchor + W_ITEM_INDEX]
    F[F_NUMBER] = M[anchor + W_ITEM_NUMBER]
    F[F_STORED] = 0
    F[F_POWER] = 1
    F[F_SINCE] = 0
    F[F_LOOKS] = 0


@cold
def look(M: State, P: Program, X: State, F: State, until: int) -> None:
    """Look at the state after the anchor took its loop branch, and skip what repeats, up to cycle `until` at most."""
    t = M[H_TIME]
    anchor = M[H_ANCHOR]
    if M[anchor + W_ITEM_INDEX] != F[F_ITEM] or M[anchor + W_ITEM_NUMBER] != F[F_NUMBER]:
        begin_item(M, F, anchor)
    if M[H_ISSUED] - F[F_LAST] < SPACING or M[H_HEAP_COUNT] > EVENTS:
        return
    F[F_LAST] = M[H_ISSUED]
    F[F_LOOKS] += 1
    if F[F_LOOKS] > KEEN and F[F_LOOKS] % RARE >= BURST:
        F[F_STORED] = 0
        F[F_POWER] = 1
        return
    for i in range(M[H_SMS] if M[H_BITS] != 0 else 0):
        make_changes(M, M[H_SM] + i * S_WORDS, t - 1)
    flush_accounts(M, P, t)  # what held a warp up in the past is no part of the relative state
    length = relative_state(M, X, F, F[F_CURRENT], t) - F[F_CURRENT]
    if F[F_STORED] != 0 and equal_states(F, length):
        periods = loops_allow(M, F, (until - t) // (t - F[F_CYCLE])) if phases_allow(M, F, place_of_phases(M, F)) else 0
        periods = memory_allows(M, P, X, F, t, periods)
        if periods > 0:
            skip(M, X, F, t, periods)
            F[F_STORED] = 0
        return
    F[F_SINCE] += 1
    if F[F_STORED] == 0 or F[F_SINCE] >= F[F_POWER]:
        if F[F_STORED] != 0:
            F[F_POWER] *= 2
        store_current(M, P, X, F, t, length)
