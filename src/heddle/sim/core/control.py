"""Control flow: loops, work items, the end of warps, and the launch of CTAs."""

from __future__ import annotations

from heddle.sim.core.bits import cold
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.ideal_window import begin
from heddle.sim.core.layout import (
    B_ARRIVED,
    B_BYTES,
    B_PARITY,
    B_WAITERS,
    B_WORDS,
    C_ARRIVED,
    C_CLUSTER,
    C_FIRST,
    C_GROUPS,
    C_LIVE,
    C_MBARRIERS,
    C_NAMED,
    C_READ,
    C_REGISTERS,
    C_VISIBLE,
    C_WORDS,
    E_KIND,
    E_WHERE,
    E_WORDS,
    ERROR_ITEM_SLOTS,
    EV_ARRIVE,
    EV_BYTES,
    EV_COPY,
    EV_LAND,
    EV_LAUNCH,
    EV_LOST,
    G_FORMED,
    G_READ,
    G_SIGNALS,
    G_WORDS,
    H_ANCHOR,
    H_ANCHOR_HIT,
    H_ATTRIBUTES,
    H_BITS,
    H_CLUSTER_SIZE,
    H_CONTEXTS,
    H_END,
    H_ERROR,
    H_FETCH,
    H_FIBER,
    H_GRID,
    H_GROUPS_PER_CTA,
    H_HEAP,
    H_HEAP_COUNT,
    H_ITEM_COUNT,
    H_ITEM_DONE,
    H_ITEMS,
    H_LAUNCH,
    H_LIVE,
    H_MBARRIERS,
    H_ORDINALS,
    H_QUEUE,
    H_QUEUE_COUNT,
    H_QUEUE_NEXT,
    H_SCHEDULE,
    H_SLOTS,
    H_WARPS_PER_CTA,
    ITEM_SLOTS,
    K_ARRIVED,
    K_CTAS,
    K_FREE,
    K_ITEM,
    K_ITEMS,
    K_LIVE,
    K_WAITERS,
    NAMED,
    P_COLD,
    S_FETCH_FREE,
    S_LINES,
    SCHEDULE_LAUNCH,
    SCHEDULE_STATIC,
    ST_DEAD,
    TICK_BITS,
    W_ABSENT,
    W_ACCOUNT,
    W_BOUND,
    W_CLUSTER,
    W_COUNTER,
    W_CTA,
    W_DONE,
    W_ENTRY,
    W_EXITS,
    W_FETCH,
    W_GROUPED,
    W_ITEM,
    W_ITEM_INDEX,
    W_ITEM_NUMBER,
    W_ITEM_ORDINAL,
    W_LINK,
    W_NEXT_OK,
    W_OTHER,
    W_OWNER,
    W_PHASE,
    W_REASON,
    W_ROW,
    W_RUNS,
    W_SIGNALS,
    W_SM,
    W_STATE,
    W_VACANT,
    X_COUNT,
    X_COUNT_ATTRIBUTE,
    X_ID,
    X_LEVEL,
    X_LINE,
)
from heddle.sim.core.layout_fiber import H_OWNERS
from heddle.sim.core.layout_ideal import H_IDEAL
from heddle.sim.core.meeting import check_meeting
from heddle.sim.core.thread_end import end_threads
from heddle.sim.core.wake import sleep
from heddle.sim.result import Stall

WAIT, BRANCH_RESOLVING = int(Stall.WAIT), int(Stall.BRANCH_RESOLVING)


def loop_count(M: State, P: Program, warp: int, cold: int) -> int:
    """Return the count of a LOOP instruction for the warp's work item."""
    count = P[cold + X_COUNT]
    if P[cold + X_COUNT_ATTRIBUTE] >= 0:
        count += M[M[warp + W_ITEM] + P[cold + X_COUNT_ATTRIBUTE]]
    return int(count)


def take_loop(M: State, P: Program, warp: int, cold: int) -> bool:
    """Count one pass of a loop and tell whether there is another."""
    level = P[cold + X_LEVEL]
    passes = M[warp + W_COUNTER + level] + 1
    bound = loop_count(M, P, warp, cold)
    M[warp + W_BOUND + level] = bound
    if passes < bound:
        M[warp + W_COUNTER + level] = passes
        if warp == M[H_ANCHOR]:
            M[H_ANCHOR_HIT] = 1
        return True
    M[warp + W_COUNTER + level] = 0
    M[warp + W_EXITS + level] += 1
    return False


def take_skip(M: State, P: Program, warp: int, cold: int) -> bool:
    """Tell whether the item attribute of a SKIP is zero."""
    return bool(M[M[warp + W_ITEM] + P[cold + X_ID]] == 0)


def set_item(M: State, warp: int, item: int, ordinal: int) -> None:
    """Let the warp work on a row of the work items, the ordinal-th of its cluster."""
    M[warp + W_ITEM_INDEX] = item
    M[warp + W_ITEM] = M[H_ITEMS] + item * M[H_ATTRIBUTES]
    M[warp + W_ITEM_ORDINAL] = ordinal


def finish_item(M: State, warp: int, t: int) -> None:
    """Note when a warp left its work item."""
    at = M[H_ITEM_DONE] + M[warp + W_ITEM_INDEX]
    M[at] = max(M[at], t)


def hand_out(M: State, cluster: int, number: int) -> bool:
    """Fix the next item of the queue as the cluster's item `number`, if there is one."""
    place = M[H_QUEUE_NEXT]
    while place < M[H_QUEUE_COUNT] and M[M[H_QUEUE] + place] < 0:
        place += 1
    M[H_QUEUE_NEXT] = place
    if place >= M[H_QUEUE_COUNT]:
        return False
    M[H_QUEUE_NEXT] = place + 1
    M[cluster + K_ITEM + (number & (ITEM_SLOTS - 1))] = place
    M[cluster + K_ITEMS] = number + 1
    return True


def take_next_item(M: State, warp: int, t: int) -> bool:
    """Move the warp to its cluster's next work item, if there is one."""
    finish_item(M, warp, t)
    cluster = M[warp + W_CLUSTER]
    number = M[warp + W_ITEM_NUMBER] + 1
    if M[H_SCHEDULE] == SCHEDULE_STATIC:
        item = M[warp + W_ITEM_INDEX] + M[H_GRID]
        if item < M[H_ITEM_COUNT]:
            M[warp + W_ITEM_NUMBER] = number
            set_item(M, warp, item, M[warp + W_ITEM_ORDINAL] + M[H_ORDINALS])
            return True
        return False
    if M[H_SCHEDULE] == SCHEDULE_LAUNCH:
        return False
    if number >= M[cluster + K_ITEMS] and not hand_out(M, cluster, number):
        return False
    if M[cluster + K_ITEMS] - number > ITEM_SLOTS:
        M[H_ERROR] = ERROR_ITEM_SLOTS
    M[warp + W_ITEM_NUMBER] = number
    place = M[cluster + K_ITEM + (number & (ITEM_SLOTS - 1))]
    set_item(M, warp, M[M[H_QUEUE] + place], place)
    return True


def exit_warp(M: State, P: Program, warp: int, t: int) -> None:
    """End a warp; the last one ends its CTA."""
    M[warp + W_STATE] = ST_DEAD
    M[H_LIVE] -= 1
    finish_item(M, warp, t + 1)
    cta = M[warp + W_CTA]
    M[cta + C_LIVE] -= 1
    M[H_END] = max(M[H_END], t + 1)
    if M[cta + C_LIVE] == 0:
        end_cta(M, cta, t)
    elif M[cta + C_ARRIVED] != 0:
        check_meeting(M, P, cta, t)


def end_cta(M: State, cta: int, t: int) -> None:
    """End a CTA in cycle t; the last one frees the cluster's slot."""
    cluster = M[cta + C_CLUSTER]
    M[cluster + K_FREE] = max(M[cluster + K_FREE], max(t + 1, M[cta + C_READ]))
    M[cluster + K_LIVE] -= 1
    if M[cluster + K_LIVE] != 0:
        return
    if M[H_BITS] != 0:
        end_threads(M, cluster)
    elif M[H_SCHEDULE] == SCHEDULE_LAUNCH and M[H_QUEUE_NEXT] < M[H_QUEUE_COUNT]:
        post(M, M[cluster + K_FREE], EV_LAUNCH, cluster, 0, 0)


@cold
def fetch(M: State, P: Program, warp: int, row: int, t: int) -> None:
    """Request the instruction line of `row` in cycle t if the SM has not, and note when it is there."""
    if M[H_FETCH] == 0:
        return
    sm = M[warp + W_SM]
    at = M[sm + S_LINES] + P[P[row + P_COLD] + X_LINE]
    if M[at] == 0:
        M[sm + S_FETCH_FREE] = max(M[sm + S_FETCH_FREE], t << TICK_BITS) + M[H_FETCH]
        M[at] = max(1, M[sm + S_FETCH_FREE] >> TICK_BITS)
    M[warp + W_FETCH] = max(M[warp + W_FETCH], M[at])


def reset_warp(M: State, warp: int) -> None:
    """Give a warp context the state of a new warp; its account goes on."""
    for k in range(W_COUNTER, W_ACCOUNT):
        M[warp + k] = 0
    M[warp + W_LINK] = 0
    M[warp + W_PHASE] = 0
    M[warp + W_RUNS] = 0
    M[warp + W_ROW] = M[warp + W_ENTRY]
    M[warp + W_GROUPED] = 0
    M[warp + W_SIGNALS] = 0
    M[warp + W_VACANT] = 0
    M[warp + W_OTHER] = 0
    M[H_OWNERS] += 1
    M[warp + W_OWNER] = M[H_OWNERS]


def lose_signals(M: State, cta: int) -> None:
    """Lose what is on its way to the barriers of an ended CTA, so that the next does not get it; copies still land."""
    first = M[cta + C_MBARRIERS]
    end = first + M[H_MBARRIERS] * B_WORDS
    for i in range(M[H_HEAP_COUNT]):
        event = M[H_HEAP] + i * E_WORDS
        kind = M[event + E_KIND]
        if first <= M[event + E_WHERE] and M[event + E_WHERE] < end:
            if kind == EV_LAND:
                M[event + E_KIND] = EV_COPY
            elif kind in (EV_ARRIVE, EV_BYTES):
                M[event + E_KIND] = EV_LOST


def reset_cta(M: State, cta: int) -> None:
    """Give a CTA slot fresh barriers."""
    lose_signals(M, cta)
    M[cta + C_LIVE] = 0
    M[cta + C_READ] = 0
    M[cta + C_VISIBLE] = 0
    for k in range(C_ARRIVED, C_REGISTERS):
        M[cta + k] = 0
    for k in range(C_NAMED, C_NAMED + 2 * NAMED):
        M[cta + k] = 0
    for i in range(M[H_MBARRIERS]):
        barrier = M[cta + C_MBARRIERS] + i * B_WORDS
        M[barrier + B_ARRIVED] = 0
        M[barrier + B_BYTES] = 0
        M[barrier + B_PARITY] = 0
        M[barrier + B_WAITERS] = 0


def launch_warp(M: State, P: Program, warp: int, item: int, ordinal: int, launch: int, start: int) -> None:
    """Start a warp of a CTA that is launched in cycle `launch` and runs from cycle `start`."""
    reset_warp(M, warp)
    M[warp + W_DONE] = launch
    M[warp + W_NEXT_OK] = launch
    M[warp + W_REASON] = WAIT
    M[warp + W_FETCH] = start
    set_item(M, warp, item, ordinal)
    fetch(M, P, warp, M[warp + W_ROW], start)
    M[H_LIVE] += 1
    M[M[warp + W_CTA] + C_LIVE] += 1
    if M[H_IDEAL] != 0:
        begin(M, P, warp)
    sleep(M, warp, M[warp + W_FETCH], launch)


def launch_cluster(M: State, P: Program, cluster: int, item: int, ordinal: int, launch: int, start: int) -> None:
    """Launch one CTA in the same slot of each SM of a cluster (in the event phase of cycle `launch`)."""
    M[cluster + K_LIVE] = 0
    M[cluster + K_FREE] = 0
    M[cluster + K_ITEMS] = 1
    M[cluster + K_ITEM] = ordinal
    M[cluster + K_ARRIVED] = 0
    M[cluster + K_WAITERS] = 0
    cta = M[cluster + K_CTAS]
    for _ in range(M[H_CLUSTER_SIZE]):
        reset_cta(M, cta)
        group = M[cta + C_GROUPS]
        for i in range(M[H_GROUPS_PER_CTA]):
            M[group + i * G_WORDS + G_FORMED] = 0
            M[group + i * G_WORDS + G_SIGNALS] = 0
            M[group + i * G_WORDS + G_READ] = 0
        for i in range(M[H_WARPS_PER_CTA]):
            warp = M[M[H_CONTEXTS] + M[cta + C_FIRST] + i]
            if M[H_FIBER] != 0 and i > 0:
                M[warp + W_VACANT] = 1 - M[warp + W_ABSENT]  # weft 0 starts the others
            elif M[warp + W_ABSENT] == 0:
                launch_warp(M, P, warp, item, ordinal, launch, start)
        M[cluster + K_LIVE] += 1
        cta += M[H_SLOTS] * C_WORDS


def launch_next(M: State, P: Program, cluster: int, t: int) -> None:
    """Launch the next work item of a launch schedule in a slot that is free in cycle t."""
    ordinal = M[H_QUEUE_NEXT]
    if ordinal >= M[H_QUEUE_COUNT]:
        return
    M[H_QUEUE_NEXT] = ordinal + 1
    launch_cluster(M, P, cluster, M[M[H_QUEUE] + ordinal], ordinal, t, t + M[H_LAUNCH])
