"""When an instruction of an idealised simulation may issue; what holds it up is left in the warp's W_HELD."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.barriers import MBARRIER, SEMAPHORE, asked_parity, mbarrier_of, semaphore_of
from heddle.sim.core.blocked import DISPATCH_STALL, pipe_until, ports_until, queue_until
from heddle.sim.core.conditions import GMMA, LONG_SCOREBOARD, groups_end
from heddle.sim.core.heap import Program, State
from heddle.sim.core.ideal_window import end_of, kind_of
from heddle.sim.core.layout import (
    A_VALUE,
    B_BYTES,
    B_PARITY,
    B_WORDS,
    C_MBARRIERS,
    COUNTERS,
    GROUPS,
    H_DEPTH,
    H_SEMAPHORES_WAIT,
    H_WGMMA_DEPTH,
    INF,
    K_CTAS,
    P_COLD,
    P_PORTS,
    P_WORDS,
    QUEUE_NONE,
    QUEUE_SLOTS,
    TICK_BITS,
    W_AT_REST,
    W_BULK,
    W_BULK_COUNT,
    W_CAUSE,
    W_CLUSTER,
    W_COPY,
    W_COPY_COUNT,
    W_CTA,
    W_HELD,
    W_MMA,
    W_MMA_COUNT,
    W_MMA_COUNTERS,
    W_MMA_GROUPS,
    W_NEXT_OK,
    W_PARITY,
    W_PENDING,
    W_REASON,
    W_STAGE,
    X_BARRIER_CTA,
    X_PENDING,
    X_PIPE_CAUSE,
    X_QUEUE_CAUSE,
)
from heddle.sim.core.layout_ideal import (
    H_I_PCS,
    H_IDEAL,
    I_DESTINATIONS,
    I_SOURCES,
    I_TILES,
    I_WORDS,
    IDEAL_BARRIERS,
    IDEAL_PRODUCTS,
    KIND_MATRIX,
    O_GUARD,
    O_READ,
    O_VALUE,
    Q_MATRIX_FREE,
    Q_MATRIX_OPEN,
    Q_MATRIX_WARP,
    TILE_BARRIER,
    TILE_BYTES,
    TILE_OFFSET,
    TILE_RING,
    TILE_WORDS,
    W_IDEAL,
)
from heddle.sim.core.rows import is_off, queue_of, unit_of, waits_of
from heddle.sim.result import Stall

GROUP_WAIT, BULK_WAIT, WGMMA_WAIT = int(Unit.GROUP_WAIT), int(Unit.BULK_WAIT), int(Unit.WGMMA_WAIT)
MBARRIER_WAIT, SEM_ACQUIRE, EXIT = int(Unit.MBARRIER_WAIT), int(Unit.SEM_ACQUIRE), int(Unit.EXIT)
BARRIER_SYNC, CLUSTER_SYNC = int(Unit.BARRIER_SYNC), int(Unit.CLUSTER_SYNC)
WAIT = int(Stall.WAIT)


def own_from(M: State, P: Program, warp: int, row: int, t: int) -> int:
    """Conditions b and c: return the cycle from which the one that fails at t holds, t if none does."""
    if M[warp + W_NEXT_OK] > t:
        M[warp + W_HELD] = M[warp + W_REASON]
        return int(M[warp + W_NEXT_OK])
    mask = waits_of(P, row)
    if mask != 0:
        for k in range(COUNTERS):
            if (mask >> k) & 1:
                rest = INF if M[warp + W_PENDING + k] != 0 else M[warp + W_AT_REST + k]
                if rest > t:
                    M[warp + W_HELD] = M[warp + W_CAUSE + k]
                    return int(rest)
    return t


def condition_from(M: State, P: Program, warp: int, row: int, t: int) -> int:
    """Condition d: return the cycle from which it holds, INF if that is not known, t if it does now."""
    if is_off(M, P, warp, row):
        return t
    unit, cold = unit_of(P, row), P[row + P_COLD]
    until, reason = 0, LONG_SCOREBOARD
    if unit == MBARRIER_WAIT:
        until, reason = phase_from(M, P, warp, cold), MBARRIER
    elif unit == WGMMA_WAIT:
        until, reason = products_from(M, warp, P[cold + X_PENDING]), GMMA
    elif unit == GROUP_WAIT:
        until = groups_end(M, M[warp + W_COPY_COUNT], warp + W_COPY, P[cold + X_PENDING])
    elif unit == BULK_WAIT:
        until = groups_end(M, M[warp + W_BULK_COUNT], warp + W_BULK, P[cold + X_PENDING])
    elif unit == SEM_ACQUIRE:
        until, reason = semaphore_from(M, P, warp, cold), SEMAPHORE
    elif M[H_IDEAL] & (IDEAL_BARRIERS | IDEAL_PRODUCTS) != 0:
        return ideal_from(M, P, warp, row, unit, t)
    if until > t:
        M[warp + W_HELD] = reason
        return int(until)
    return t


def ideal_from(M: State, P: Program, warp: int, row: int, unit: int, t: int) -> int:
    """What takes the place of waits: a product needs its tiles, a meeting that products have read what is given up."""
    until, reason = tiles_from(M, P, warp, row), MBARRIER
    if until == 0 and ((unit >= BARRIER_SYNC and unit <= CLUSTER_SYNC) or unit == EXIT):
        until, reason = M[M[warp + W_IDEAL] + O_GUARD], GMMA
    if until > t:
        M[warp + W_HELD] = reason
        return int(until)
    return t


def semaphore_from(M: State, P: Program, warp: int, cold: int) -> int:
    """Return 0 if a semaphore has the value that is waited for, else INF."""
    waits = M[H_SEMAPHORES_WAIT] != 0 and M[semaphore_of(M, P, warp, cold) + A_VALUE] < P[cold + X_PENDING]
    return INF if waits else 0


def phase_from(M: State, P: Program, warp: int, cold: int) -> int:
    """Return 0 if the asked phase of an mbarrier is complete, else INF."""
    cta = M[warp + W_CTA] if P[cold + X_BARRIER_CTA] == 0 else M[M[warp + W_CLUSTER] + K_CTAS]
    return 0 if M[mbarrier_of(M, P, warp, cold, cta) + B_PARITY] != asked_parity(M, P, warp, cold) else INF


def products_from(M: State, warp: int, pending: int) -> int:
    """Return when all groups of products but the youngest `pending` are complete; 0 where the wait does not wait."""
    last = M[warp + W_MMA_GROUPS] - pending
    if M[H_IDEAL] & IDEAL_PRODUCTS != 0 or last <= 0:
        return 0
    count = M[warp + W_MMA + ((last - 1) & (GROUPS - 1))]
    return end_of(M, warp, count) if count > 0 else 0


def tiles_from(M: State, P: Program, warp: int, row: int) -> int:
    """Return 0 if the tiles that a matrix instruction reads have landed, else INF."""
    tiles = P[M[H_I_PCS] + row // P_WORDS * I_WORDS + I_TILES]
    for k in range(P[tiles]):
        if not has_landed(M, P, warp, tiles + 1 + k * TILE_WORDS):
            return INF
    return 0


def has_landed(M: State, P: Program, warp: int, tile: int) -> bool:
    """Tell whether a tile of the warp's stage is there: by phase, or by all bytes so far where barriers are off."""
    index, phase, ring = P[tile + TILE_OFFSET], 0, P[tile + TILE_RING]
    if ring >= 0:
        index += M[warp + W_STAGE + ring]
        phase = M[warp + W_PARITY + ring]
        if index >= M[H_DEPTH + ring]:
            index -= M[H_DEPTH + ring]
            phase += 1
    barrier = M[M[warp + W_CTA] + C_MBARRIERS] + (P[tile + TILE_BARRIER] + index) * B_WORDS
    if M[H_IDEAL] & IDEAL_BARRIERS != 0:
        return bool(-M[barrier + B_BYTES] >= (phase + 1) * P[tile + TILE_BYTES])
    return bool(M[barrier + B_PARITY] != phase & 1)


def registers_from(M: State, P: Program, warp: int, row: int) -> int:
    """Return when products have left alone the registers of an instruction that issues in order.

    It reads what they have written, and writes what they have written or read.
    """
    own, pc = M[warp + W_IDEAL], M[H_I_PCS] + row // P_WORDS * I_WORDS
    until = 0
    sources, written = P[pc + I_SOURCES], P[pc + I_DESTINATIONS]
    for k in range(P[sources]):
        until = max(until, M[own + O_VALUE + P[sources + 1 + k]])
    if kind_of(M, P, row) & KIND_MATRIX != 0:
        return int(until)  # products on the same accumulators follow each other in the matrix unit
    for k in range(P[written]):
        at = own + P[written + 1 + k]
        until = max(until, max(M[at + O_VALUE], M[at + O_READ]))
    return int(until)


def product_from(M: State, sub: int, warp: int) -> int:
    """Return when there is a place in the warp's queue of products, and the group that is served leaves room for it."""
    until, before = 0, M[warp + W_MMA_COUNT] - M[H_WGMMA_DEPTH]
    if before >= 0:
        until = M[warp + W_MMA_COUNTERS + (before & (QUEUE_SLOTS - 1))]
    if M[sub + Q_MATRIX_OPEN] != 0 and M[sub + Q_MATRIX_WARP] != warp:
        until = max(until, M[sub + Q_MATRIX_FREE] >> TICK_BITS)
    return int(until)


def free_from(M: State, P: Program, sub: int, warp: int, row: int, kind: int, t: int) -> int:
    """Conditions e to g: return the cycle from which they hold as things stand."""
    if is_off(M, P, warp, row):
        return t
    queue, cold = 0, P[row + P_COLD]
    if kind & KIND_MATRIX != 0 and M[H_IDEAL] & IDEAL_PRODUCTS != 0:
        queue = product_from(M, sub, warp)
    elif queue_of(P, row) != QUEUE_NONE:
        queue = queue_until(M, P, sub, warp, row)
    pipe = pipe_until(M, P, sub, row)
    ports = ports_until(M, P, sub, warp, row) if P[row + P_PORTS] != 0 else 0
    if queue > t:
        M[warp + W_HELD] = P[cold + X_QUEUE_CAUSE]
    elif pipe > t:
        M[warp + W_HELD] = P[cold + X_PIPE_CAUSE]
    elif ports > t:
        M[warp + W_HELD] = DISPATCH_STALL
    return int(max(max(queue, pipe), max(ports, t)))
