"""Issue of one instruction: pipe, read ports, counters, the unit's effect, and when the warp goes on."""

from __future__ import annotations

from heddle.ir.opcodes import Unit
from heddle.sim.core.barriers import arrive, expect, meet, semaphore_of
from heddle.sim.core.bits import ctz
from heddle.sim.core.blocked import reuses, settle_others
from heddle.sim.core.bulk import issue_bulk_load, issue_bulk_peer, issue_bulk_store
from heddle.sim.core.control import exit_warp, fetch, take_loop, take_next_item, take_skip
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    ACCOUNT_OFF,
    C_NAMED,
    C_VISIBLE,
    EV_SEMAPHORE,
    FLAG_ADVANCE,
    GROUPS,
    H_ARRIVE,
    H_CLUSTER_BARRIER,
    H_DEPTH,
    H_FETCH,
    H_ISSUED,
    H_LOG,
    H_NAMED,
    H_NAMED_WARP,
    H_NEAR,
    H_PCS,
    H_READS,
    H_REMOTE,
    H_SHARE,
    K_ARRIVED,
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
    W_BULK,
    W_BULK_CLOSED,
    W_BULK_COUNT,
    W_BULK_OPEN,
    W_CLUSTER,
    W_COPY,
    W_COPY_CLOSED,
    W_COPY_COUNT,
    W_COPY_OPEN,
    W_CTA,
    W_DONE,
    W_MMA,
    W_MMA_COUNT,
    W_MMA_GROUPS,
    W_NEXT_OK,
    W_PARITY,
    W_REASON,
    W_ROW,
    W_STAGE,
    W_TCGEN05_DONE,
    X_ADVANCE,
    X_CAUSE,
    X_EXTRA,
    X_ID,
    X_LATENCY,
    X_PORTS_REUSE,
    X_READ,
    X_TARGET,
    X_WARPS,
    X_WRITE,
)
from heddle.sim.core.layout_ideal import H_PHASES
from heddle.sim.core.log import record, record_waits
from heddle.sim.core.paths import next_path
from heddle.sim.core.rows import is_off, released_of, unit_of
from heddle.sim.core.shared import close_group, issue_global, issue_shared, set_counter
from heddle.sim.core.tensor import (
    accumulators_active,
    issue_tcgen05,
    issue_tensor_memory,
    issue_wgmma,
    signal_reads,
)
from heddle.sim.core.wake import place
from heddle.sim.result import Stall

VARIABLE, SHARED, GLOBAL = int(Unit.VARIABLE), int(Unit.SHARED), int(Unit.GLOBAL)
GROUP_COMMIT, GROUP_WAIT = int(Unit.GROUP_COMMIT), int(Unit.GROUP_WAIT)
WGMMA, WGMMA_ARRIVE, WGMMA_COMMIT = int(Unit.WGMMA), int(Unit.WGMMA_ARRIVE), int(Unit.WGMMA_COMMIT)
BULK_LOAD, BULK_STORE, BULK_COMMIT = int(Unit.BULK_LOAD), int(Unit.BULK_STORE), int(Unit.BULK_COMMIT)
BULK_PEER = int(Unit.BULK_PEER)
MBARRIER_EXPECT, MBARRIER_ARRIVE = int(Unit.MBARRIER_EXPECT), int(Unit.MBARRIER_ARRIVE)
MBARRIER_WAIT = int(Unit.MBARRIER_WAIT)
BARRIER_SYNC, BARRIER_ARRIVE, CLUSTER_SYNC = int(Unit.BARRIER_SYNC), int(Unit.BARRIER_ARRIVE), int(Unit.CLUSTER_SYNC)
TCGEN05_MMA, TCGEN05_COMMIT = int(Unit.TCGEN05_MMA), int(Unit.TCGEN05_COMMIT)
TMEM_LOAD, TMEM_STORE = int(Unit.TMEM_LOAD), int(Unit.TMEM_STORE)
SET_REGISTERS, SEM_RELEASE, SEM_ACQUIRE = int(Unit.SET_REGISTERS), int(Unit.SEM_RELEASE), int(Unit.SEM_ACQUIRE)
WGMMA_SIGNAL = int(Unit.WGMMA_SIGNAL)
LOOP, SKIP, NEXT_ITEM, EXIT = int(Unit.LOOP), int(Unit.SKIP), int(Unit.NEXT_ITEM), int(Unit.EXIT)
SPLIT = int(Unit.SPLIT)
WAIT, BRANCH_RESOLVING, GMMA = int(Stall.WAIT), int(Stall.BRANCH_RESOLVING), int(Stall.GMMA)
NO_ROW = -1000  # the last instruction left nothing in the reuse cache
MBARRIER, SEMAPHORE, SELECTED = int(Stall.MBARRIER), int(Stall.SEMAPHORE), int(Stall.SELECTED)


def hold(M: State, warp: int, t: int, cycles: int, reason: int) -> None:
    """Let the warp's next instruction wait `cycles` from t, at least as long as its stall count says, for a reason."""
    M[warp + W_NEXT_OK] = max(M[warp + W_NEXT_OK], t + cycles)
    M[warp + W_REASON] = reason


def take_ports(M: State, sub: int, ports: int, t: int) -> None:
    """Charge the read ports of the register banks."""
    shared = M[H_SHARE] != 0 and accumulators_active(M, M[sub + Q_SM], t)
    now = t << TICK_BITS
    bank = 0
    while ports != 0:
        reads = ports & 255
        if reads != 0:
            ticks = M[H_READS + reads] if shared else reads << TICK_BITS
            M[sub + Q_PORT + bank] = max(M[sub + Q_PORT + bank], now) + ticks
        ports >>= 8
        bank += 1


def advance_rings(M: State, P: Program, warp: int, cold: int) -> None:
    """Step the rings that the instruction advances."""
    mask = P[cold + X_ADVANCE]
    while mask != 0:
        ring = ctz(mask)
        mask &= mask - 1
        stage = M[warp + W_STAGE + ring] + 1
        if stage == M[H_DEPTH + ring]:
            stage = 0
            M[warp + W_PARITY + ring] = (M[warp + W_PARITY + ring] + 1) & M[H_PHASES]
        M[warp + W_STAGE + ring] = stage


def branch(M: State, P: Program, warp: int, row: int, cold: int, taken: bool, t: int) -> int:
    """Return the row that follows a branch."""
    if not taken:
        return row + P_WORDS
    hold(M, warp, t, P[cold + X_LATENCY], BRANCH_RESOLVING)
    return int(P[cold + X_TARGET])


def issue_control(M: State, P: Program, warp: int, row: int, t: int) -> int:
    """LOOP, SKIP, NEXT, EXIT, and paths of fibers: return the next row, -1 at the end of the warp."""
    unit, cold = unit_of(P, row), P[row + P_COLD]
    if unit == LOOP:
        return branch(M, P, warp, row, cold, take_loop(M, P, warp, cold), t)
    if unit == SKIP:
        return branch(M, P, warp, row, cold, take_skip(M, P, warp, cold), t)
    if unit == NEXT_ITEM:
        return branch(M, P, warp, row, cold, take_next_item(M, warp, t), t)
    if unit >= SPLIT:
        return next_path(M, P, warp, row, cold, t)
    exit_warp(M, P, warp, t)
    return -1


def issue_barrier(M: State, P: Program, warp: int, row: int, t: int) -> None:
    """Barriers, mbarriers, semaphores."""
    unit, cold = unit_of(P, row), P[row + P_COLD]
    warps = P[cold + X_WARPS]
    if unit in (MBARRIER_ARRIVE, MBARRIER_EXPECT):
        if unit == MBARRIER_EXPECT:
            expect(M, P, warp, cold)
        arrive(M, P, warp, cold, t + M[H_ARRIVE], M[H_REMOTE])
    elif unit == MBARRIER_WAIT:
        hold(M, warp, t, P[cold + X_EXTRA], MBARRIER)
    elif unit in (BARRIER_SYNC, BARRIER_ARRIVE):
        place = M[warp + W_CTA] + C_NAMED + 2 * P[cold + X_ID]
        cost = M[H_NAMED] + warps * M[H_NAMED_WARP]
        meet(M, P, warp, place, warps, cost, 1 if unit == BARRIER_SYNC else 0, t)
    elif unit == CLUSTER_SYNC:
        meet(M, P, warp, M[warp + W_CLUSTER] + K_ARRIVED, warps, M[H_CLUSTER_BARRIER], 1, t)
    elif unit == SEM_RELEASE:
        time = max(t + M[H_NEAR], M[M[warp + W_CTA] + C_VISIBLE])
        post(M, time, EV_SEMAPHORE, semaphore_of(M, P, warp, cold), 0, 0)
    else:
        hold(M, warp, t, M[H_NEAR], SEMAPHORE)


def issue_matrix(M: State, P: Program, L: State, warp: int, row: int, t: int, own: int) -> None:
    """Warp-group and tcgen05 instructions, tensor memory."""
    unit, cold = unit_of(P, row), P[row + P_COLD]
    if unit == WGMMA:
        issue_wgmma(M, P, L, warp, row, t)
    elif unit == WGMMA_ARRIVE:
        hold(M, warp, t, P[cold + X_EXTRA], GMMA)
    elif unit == WGMMA_COMMIT:
        M[warp + W_MMA + (M[warp + W_MMA_GROUPS] & (GROUPS - 1))] = M[warp + W_MMA_COUNT]
        M[warp + W_MMA_GROUPS] += 1
    elif unit == TCGEN05_MMA:
        issue_tcgen05(M, P, L, warp, row, t)
    elif unit == TCGEN05_COMMIT:
        time = max(t, M[warp + W_TCGEN05_DONE]) + P[cold + X_EXTRA]
        arrive(M, P, warp, cold, time, M[H_REMOTE])
    else:
        issue_tensor_memory(M, P, warp, row, t, own)


def issue_unit(  # noqa: C901 (one branch a kind of unit)
    M: State, P: Program, L: State, X: State, warp: int, row: int, t: int, own: int
) -> int:
    """Have the effect of an instruction that is not just a pipe's; return the next row, -1 at the end of the warp."""
    unit, cold = unit_of(P, row), P[row + P_COLD]
    if unit == SHARED:
        issue_shared(M, P, warp, row, t)
    elif unit == GLOBAL:
        issue_global(M, P, L, X, warp, row, t)
    elif unit == WGMMA_SIGNAL:
        signal_reads(M, P, warp, cold, t)
    elif unit >= LOOP and unit != BULK_PEER:
        return issue_control(M, P, warp, row, t)
    elif unit in (WGMMA, WGMMA_ARRIVE, WGMMA_COMMIT, TCGEN05_MMA, TCGEN05_COMMIT, TMEM_LOAD, TMEM_STORE):
        issue_matrix(M, P, L, warp, row, t, own)
    elif unit == BULK_LOAD:
        issue_bulk_load(M, P, L, X, warp, row, t)
    elif unit == BULK_STORE:
        issue_bulk_store(M, P, L, X, warp, row, t)
    elif unit == BULK_PEER:
        issue_bulk_peer(M, P, L, warp, row, t)
    elif unit == GROUP_COMMIT:
        close_group(M, warp + W_COPY_COUNT, warp + W_COPY_OPEN, warp + W_COPY_CLOSED, warp + W_COPY)
    elif unit == BULK_COMMIT:
        close_group(M, warp + W_BULK_COUNT, warp + W_BULK_OPEN, warp + W_BULK_CLOSED, warp + W_BULK)
    elif unit == SET_REGISTERS:
        hold(M, warp, t, P[cold + X_EXTRA], WAIT)
    elif (unit >= MBARRIER_EXPECT and unit <= CLUSTER_SYNC) or unit in (SEM_RELEASE, SEM_ACQUIRE):
        issue_barrier(M, P, warp, row, t)
    return row + P_WORDS


def issue_off(M: State, P: Program, warp: int, row: int, t: int) -> None:
    """Issue an instruction in which this warp does not act: a slot, its stall count and its counters."""
    cold = P[row + P_COLD]
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], t + 2)
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], t + 2)
    M[warp + W_NEXT_OK] = t + P[row + P_STALL]


def issue_on(M: State, P: Program, L: State, X: State, sub: int, warp: int, row: int, t: int) -> int:
    """Issue an instruction in which this warp acts; return the next row, -1 at the end of the warp."""
    ports, own = P[row + P_PORTS], P[row + P_OWN] & 255
    if reuses(M, P, sub, warp, row):
        ports, own = P[P[row + P_COLD] + X_PORTS_REUSE], (P[row + P_OWN] >> 8) & 255
    if ports != 0:
        take_ports(M, sub, ports, t)
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
    if unit_of(P, row) > VARIABLE:
        return issue_unit(M, P, L, X, warp, row, t, own)
    return row + P_WORDS


def release_counters(M: State, P: Program, warp: int, row: int, t: int) -> None:
    """Release the counters that follow the rule of most units: write-back after the latency, operands read after 2."""
    mask = released_of(P, row)
    cold = P[row + P_COLD]
    cause = P[cold + X_CAUSE]
    if mask & 1:
        set_counter(M, warp, P[cold + X_WRITE], cause, t + P[cold + X_LATENCY])
    if mask & 2:
        set_counter(M, warp, P[cold + X_READ], cause, t + 2)


def issue(M: State, P: Program, L: State, X: State, sub: int, warp: int, t: int) -> None:
    """Issue the warp's instruction in cycle t and decide when the warp is looked at next."""
    row = M[warp + W_ROW]
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
    following = row + P_WORDS
    if off:
        M[M[H_PCS] + P[row + P_ACCOUNT] + ACCOUNT_OFF] += 1
        issue_off(M, P, warp, row, t)
    else:
        following = issue_on(M, P, L, X, sub, warp, row, t)
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
