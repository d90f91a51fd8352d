"""SETFIBER issues in all wefts of a FIBER-thread at once: wefts are masked, others start (fiber.md, section 4)."""

from __future__ import annotations

from heddle.sim.core.accounting import credit, own_ready
from heddle.sim.core.bit_wheel import send_now
from heddle.sim.core.bit_words import part_of
from heddle.sim.core.bits import cold
from heddle.sim.core.control import end_cta, fetch, finish_item, launch_warp
from heddle.sim.core.heap import Program, State
from heddle.sim.core.issue import advance_rings
from heddle.sim.core.layout import (
    ACCOUNT_OFF,
    C_ARRIVED,
    C_LIVE,
    C_MEETS,
    C_QUADS,
    C_REGISTERS,
    C_SM,
    C_WORDS,
    FLAG_ADVANCE,
    G_FORMED,
    H_BITS,
    H_CTAS,
    H_END,
    H_FIBER,
    H_ISSUED,
    H_LIVE,
    H_LOG,
    H_PCS,
    H_SLOTS,
    H_SMS,
    H_WARPS_PER_CTA,
    INF,
    LOG_ISSUE,
    P_ACCOUNT,
    P_COLD,
    P_FLAGS,
    P_WORDS,
    ST_DEAD,
    ST_PENDING,
    SUBPARTITIONS,
    W_ACCOUNT,
    W_DONE,
    W_GROUP,
    W_GROUPED,
    W_ITEM_INDEX,
    W_ITEM_NUMBER,
    W_ITEM_ORDINAL,
    W_MMA_COUNT,
    W_NEXT_OK,
    W_REASON,
    W_ROW,
    W_STATE,
    W_VACANT,
    W_WARP,
    X_CAUSE,
    X_LATENCY,
    X_READ,
    X_WRITE,
)
from heddle.sim.core.layout_fiber import (
    ALL_PARTS,
    ALL_VIEWS,
    G4_FORMED,
    G4_WORDS,
    H_COLUMNS,
    H_POOL_FIRST,
    H_POOL_LIMIT,
    H_SET,
    PLACE_WORDS,
    ROW_FULL,
    TENSOR_FIRST,
    WHAT_PLACE_SHIFT,
)
from heddle.sim.core.log import record, record_waits
from heddle.sim.core.meeting import asked, weft_of
from heddle.sim.core.shared import set_counter
from heddle.sim.core.wake import sleep
from heddle.sim.result import Stall

FIBER_SYNC, SELECTED = int(Stall.FIBER_SYNC), int(Stall.SELECTED)


@cold
def meet_all(M: State, P: Program, L: State, t: int) -> None:
    """Let all FIBER-threads whose wefts issue a SETFIBER in cycle t do so, in the order of SM and slot."""
    for i in range(M[H_SMS] * M[H_SLOTS]):
        cta = M[H_CTAS] + i * C_WORDS
        if M[cta + C_MEETS] == 2:
            meet_wefts(M, P, L, cta, t)


def meet_wefts(M: State, P: Program, L: State, cta: int, t: int) -> None:
    """Issue the SETFIBER of a FIBER-thread in cycle t."""
    leader = weft_of(M, cta, 0)
    index = 0
    while M[leader + W_STATE] == ST_DEAD:
        index += 1
        leader = weft_of(M, cta, index)
    wanted = asked(M, P, leader)
    goes_on = max(t - 1 + M[H_SET], t + 1)
    for i in range(M[H_WARPS_PER_CTA]):
        warp = weft_of(M, cta, i)
        if M[warp + W_STATE] != ST_DEAD:
            issue_meeting(M, P, L, warp, t, goes_on)
            if i >= wanted >> 1:
                mask_weft(M, warp, cta, t)
            else:
                go_on(M, P, warp, t)
    if wanted & 1 and M[H_BITS] != 0:
        reset_pool(M, cta, t)
    if M[H_FIBER] != 0:
        for i in range(wanted >> 1):
            warp = weft_of(M, cta, i)
            if M[warp + W_VACANT] != 0:
                spawn(M, P, warp, leader, cta, t, goes_on)
    M[cta + C_ARRIVED], M[cta + C_MEETS] = 0, 0
    if M[cta + C_LIVE] == 0:
        end_cta(M, cta, t)


def issue_meeting(M: State, P: Program, L: State, warp: int, t: int, goes_on: int) -> None:
    """Issue SETFIBER in one weft, without an issue slot, a pipe or ports."""
    row = M[warp + W_ROW]
    cold, account = P[row + P_COLD], M[H_PCS] + P[row + P_ACCOUNT]
    credit(M, P, warp, FIBER_SYNC, t)
    M[H_ISSUED] += 1
    M[warp + W_ACCOUNT + SELECTED] += 1
    M[account + SELECTED] += 1
    M[account + ACCOUNT_OFF] += 1  # no pipe is busy
    M[warp + W_DONE] = t + 1
    if M[H_LOG] == 2:
        record_waits(M, P, L, warp, row, t)
    if M[H_LOG] != 0:
        record(M, P, L, warp, row, LOG_ISSUE, t, t + 1, 0)
    set_counter(M, warp, P[cold + X_WRITE], P[cold + X_CAUSE], t + P[cold + X_LATENCY])
    set_counter(M, warp, P[cold + X_READ], P[cold + X_CAUSE], t + 2)
    M[warp + W_NEXT_OK], M[warp + W_REASON] = goes_on, FIBER_SYNC
    if P[row + P_FLAGS] & FLAG_ADVANCE:
        advance_rings(M, P, warp, cold)


def go_on(M: State, P: Program, warp: int, t: int) -> None:
    """Let a weft that has issued SETFIBER in cycle t wait for its next instruction."""
    M[warp + W_ROW] += P_WORDS
    fetch(M, P, warp, M[warp + W_ROW], t)
    ready = own_ready(M, P, warp)
    if ready >= INF:
        M[warp + W_STATE] = ST_PENDING
    else:
        sleep(M, warp, max(ready, t + 1), t)


def mask_weft(M: State, warp: int, cta: int, t: int) -> None:
    """End a weft as EXIT would; it may come back as a new one."""
    M[warp + W_STATE] = ST_DEAD
    M[warp + W_VACANT] = 1
    M[H_LIVE] -= 1
    M[cta + C_LIVE] -= 1
    M[H_END] = max(M[H_END], t + 1)
    finish_item(M, warp, t + 1)


def spawn(M: State, P: Program, warp: int, leader: int, cta: int, t: int, start: int) -> None:
    """Start a new weft on the work item of the live one with the lowest number."""
    launch_warp(M, P, warp, M[leader + W_ITEM_INDEX], M[leader + W_ITEM_ORDINAL], t, start)
    M[warp + W_ITEM_NUMBER] = M[leader + W_ITEM_NUMBER]
    if M[warp + W_GROUP] != 0:
        M[warp + W_MMA_COUNT] = M[M[warp + W_GROUP] + G_FORMED]
    M[warp + W_GROUPED] = M[M[cta + C_QUADS] + M[warp + W_WARP] // 4 * G4_WORDS + G4_FORMED]


def reset_pool(M: State, cta: int, t: int) -> None:
    """Set E and clear F of the pool (SETFIBER with ALL), seen everywhere from cycle t on."""
    first, count = M[H_POOL_FIRST], M[H_POOL_LIMIT] - M[H_POOL_FIRST]
    for place in range(SUBPARTITIONS):
        if count > 0:
            reset_registers(M, cta, place, first, count, t)
        if M[H_COLUMNS] > 0:
            reset_registers(M, cta, place, TENSOR_FIRST, M[H_COLUMNS], t)


def reset_registers(M: State, cta: int, place: int, first: int, count: int, t: int) -> None:
    """Do so for a group of registers."""
    for word in range(first >> 6, (first + count + 63) >> 6):
        at, part = M[cta + C_REGISTERS] + place * PLACE_WORDS + word, part_of(first, count, word)
        what = place << WHAT_PLACE_SHIFT
        send_now(M, M[cta + C_SM], at, part, what | ALL_VIEWS, 1, t)
        send_now(M, M[cta + C_SM], at, part, what | ALL_PARTS << ROW_FULL, 0, t)
