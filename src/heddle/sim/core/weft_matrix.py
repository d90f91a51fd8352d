"""Matrix instructions of one weft, or of four neighbours together: WMMA and WMMA.TM (fiber.md, section 6).

An entry of a subpartition's queue is *decided* when its start is known.
"""

from __future__ import annotations

from heddle.sim.core.arbiter import queue_of_sub, read_cycles
from heddle.sim.core.bit_wheel import rouse
from heddle.sim.core.bits import ctz, drop_lowest
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    C_ARRIVED,
    C_LIVE,
    C_POOL_UNKNOWN,
    C_QUADS,
    ERROR_GROUP,
    EV_FETCH,
    H_ERROR,
    H_LOG,
    H_LOG_COUNT,
    H_SLACK,
    H_SWITCH,
    L_STAGE,
    L_WORDS,
    LOG_COMPLETE,
    LOG_TENSOR,
    P_COLD,
    Q_BIT_WAIT,
    Q_CANDIDATES,
    Q_SENSITIVE,
    Q_WARPS,
    Q_WORDS,
    S_BACKLOG,
    S_QUARTERS,
    S_SHARED_BYTES,
    ST_DEAD,
    ST_PENDING,
    SUBPARTITIONS,
    TICK_BITS,
    W_CAUSE,
    W_CTA,
    W_GROUPED,
    W_OWNER,
    W_PENDING,
    W_SM,
    W_STAGE,
    W_STATE,
    W_SUB,
    W_WARP,
    W_WORDS,
    X_CAUSE,
    X_READ,
    X_STAGE_RING,
    X_WRITE,
)
from heddle.sim.core.layout_fiber import (
    FLAG_GROUP,
    FLAG_TM,
    G4_FORMED,
    G4_ISSUED,
    G4_OP,
    G4_WORDS,
    H_FAULT,
    H_WEFT_BUSY,
    O_GROUP,
    O_ISSUED,
    O_OWNER,
    O_ROW,
    O_STAGE,
    O_START,
    O_WARP,
    QUEUED,
    V_COUNT,
    V_DECIDED,
    V_FREE,
    V_OP,
    V_OWNER,
    V_START,
    Y_COMPLETE,
    Y_FLAGS,
    Y_GROUP_TICKS,
    Y_PRODUCTS,
    Y_SHARED_A,
    Y_SHARED_B,
    Y_SHARED_TICKS,
    Y_SIGNATURE,
    Y_STEP,
)
from heddle.sim.core.log import record
from heddle.sim.core.matrix_ops import begin_op, end_op
from heddle.sim.core.meeting import check_meeting
from heddle.sim.core.registers import fiber_row
from heddle.sim.core.shared import add_backlog
from heddle.sim.core.tensor import settle_counter
from heddle.sim.core.wake import schedule
from heddle.sim.core.weft_operands import accumulators_of, count_reads, mark_span, most_reads, ports_free


def pend(M: State, P: Program, warp: int, cold: int) -> None:
    """Let the counters that an instruction names wait for an operation whose end is not known."""
    for word in range(X_WRITE, X_READ + 1):
        counter = P[cold + word]
        if counter >= 0:
            M[warp + W_PENDING + counter] += 1
            M[warp + W_CAUSE + counter] = P[cold + X_CAUSE]


def quad_of(M: State, warp: int) -> int:
    """Return the address of a weft's group of four."""
    return int(M[M[warp + W_CTA] + C_QUADS] + M[warp + W_WARP] // 4 * G4_WORDS)


def join_group(M: State, P: Program, warp: int, op: int, fiber: int) -> None:
    """Make an operation the next member of its four."""
    n, quad = M[warp + W_GROUPED], quad_of(M, warp)
    M[warp + W_GROUPED] = n + 1
    M[op + O_GROUP] = n
    members = quad + G4_OP + 4 * (n & (QUEUED - 1))
    for i in range(4):
        other = M[members + i]
        if other != 0 and P[fiber_row(M, M[other + O_ROW]) + Y_SIGNATURE] != P[fiber + Y_SIGNATURE]:
            M[H_ERROR], M[H_FAULT] = ERROR_GROUP, op
    M[members + (M[warp + W_WARP] & 3)] = op
    issued = quad + G4_ISSUED + (n & (QUEUED - 1))
    M[issued] += 1
    if M[issued] == 4:
        M[quad + G4_FORMED] += 1


def issue_weft_matrix(M: State, P: Program, L: State, warp: int, row: int, t: int) -> None:
    """WMMA, WMMA.TM: into the queue of the subpartition; then decide what can be."""
    fiber, cold = fiber_row(M, row), P[row + P_COLD]
    op = begin_op(M, P, warp, row, t)
    ring = P[cold + X_STAGE_RING]
    M[op + O_STAGE] = M[warp + W_STAGE + ring] if ring >= 0 else 0
    pend(M, P, warp, cold)
    if P[fiber + Y_FLAGS] & FLAG_GROUP:
        join_group(M, P, warp, op, fiber)
    queue = queue_of_sub(M, M[warp + W_SUB])
    M[queue + V_OP + (M[queue + V_COUNT] & (QUEUED - 1))] = op
    M[queue + V_COUNT] += 1
    first = M[warp + W_SM] + S_QUARTERS
    while decide_next(M, P, L, first, t):
        pass


def head_of(M: State, queue: int) -> int:
    """Return the first entry of a queue that is not decided; 0 if there is none."""
    n = M[queue + V_DECIDED]
    return int(M[queue + V_OP + (n & (QUEUED - 1))]) if n < M[queue + V_COUNT] else 0


def decide_next(M: State, P: Program, L: State, first: int, t: int) -> bool:
    """Decide the first entry of the lowest subpartition that can be, with its group; tell whether there was one."""
    for place in range(SUBPARTITIONS):
        op = head_of(M, queue_of_sub(M, first + place * Q_WORDS))
        if op != 0:
            if M[op + O_GROUP] < 0:
                decide(M, P, L, op, 0, t)
                return True
            members = quad_of(M, M[op + O_WARP]) + G4_OP + 4 * (M[op + O_GROUP] & (QUEUED - 1))
            if all_heads(M, members):
                decide(M, P, L, op, members, t)
                return True
    return False


def all_heads(M: State, members: int) -> bool:
    """Tell whether all four members of a group have issued and come next in their queues."""
    for i in range(4):
        op = M[members + i]
        if op == 0 or head_of(M, queue_of_sub(M, M[M[op + O_WARP] + W_SUB])) != op:
            return False
    return True


def decide(M: State, P: Program, L: State, op: int, members: int, t: int) -> None:
    """Give an operation (or four: `members`) its start, and tell when its operands are read and its result is there."""
    warp, fiber = M[op + O_WARP], fiber_row(M, M[op + O_ROW])
    count = 4 if members != 0 else 1
    if members != 0:
        op = M[members]
    for i in range(count):
        count_reads(M, P, op, M[members + i] if members != 0 else op, i)
    ready = max(M[M[warp + W_SM] + S_BACKLOG] - M[H_SLACK], ports_free(M, op) - P[fiber + Y_STEP])
    shared = P[fiber + Y_GROUP_TICKS] if members != 0 else P[fiber + Y_SHARED_TICKS]
    length = max(P[fiber + Y_PRODUCTS], shared)
    most = 0
    for i in range(count):
        each = M[members + i] if members != 0 else op
        queue = queue_of_sub(M, M[M[each + O_WARP] + W_SUB])
        ready = max(ready, max((M[each + O_ISSUED] + 1) << TICK_BITS, M[queue + V_FREE]))
    ready += switch_ticks(M, op, members)
    most = most_reads(M, P, op, members)
    length = max(length, read_cycles(M, most) << TICK_BITS)
    add_backlog(M, M[warp + W_SM], ready, shared)
    M[M[warp + W_SM] + S_SHARED_BYTES] += count * P[fiber + Y_SHARED_A] + P[fiber + Y_SHARED_B]
    M[op + O_START] = ready
    post(M, ready >> TICK_BITS, EV_FETCH, op, 0, 0)
    for i in range(count):
        start_op(M, P, L, M[members + i] if members != 0 else op, ready, length, t)
    for i in range(4 if members != 0 else 0):
        M[members + i] = 0
    if members != 0:
        M[members - 3 * (M[op + O_GROUP] & (QUEUED - 1)) - G4_OP + G4_ISSUED] = 0


def switch_ticks(M: State, op: int, members: int) -> int:
    """Return how long the units run empty before another weft's operation, and make its wefts their owners."""
    switched = False
    for i in range(4 if members != 0 else 1):
        warp = M[(M[members + i] if members != 0 else op) + O_WARP]
        owner = queue_of_sub(M, M[warp + W_SUB]) + V_OWNER
        switched = switched or (M[owner] != 0 and M[owner] != warp)
        M[owner] = warp
    return int(M[H_SWITCH]) if switched else 0


def start_op(M: State, P: Program, L: State, op: int, start: int, length: int, t: int) -> None:
    """Run one operation on the matrix unit of its subpartition from tick `start` on."""
    warp, row = M[op + O_WARP], M[op + O_ROW]
    fiber, sub, end = fiber_row(M, row), M[warp + W_SUB], start + length
    queue = queue_of_sub(M, sub)
    M[queue + V_START + (M[queue + V_DECIDED] & (QUEUED - 1))] = start
    M[queue + V_DECIDED] += 1
    M[queue + V_FREE] = end
    M[H_WEFT_BUSY] += length
    M[op + O_START] = start
    complete = end + P[fiber + Y_COMPLETE]
    if P[fiber + Y_FLAGS] & FLAG_TM:
        complete = start + P[fiber + Y_PRODUCTS] + P[fiber + Y_COMPLETE]
    else:
        mark_span(M, queue, accumulators_of(M, P, op), start, length)
    read, complete = end >> TICK_BITS, complete >> TICK_BITS
    finish(M, P, L, op, start >> TICK_BITS, read, complete, t)
    rest = M[sub + Q_CANDIDATES] & (M[sub + Q_SENSITIVE] | ~M[sub + Q_BIT_WAIT])
    while rest != 0:
        rouse(M, M[sub + Q_WARPS] + ctz(rest) * W_WORDS, t + 1)
        rest = drop_lowest(rest)


def finish(M: State, P: Program, L: State, op: int, begin: int, read: int, complete: int, t: int) -> None:
    """Log an operation, release its counters and tell when its bits change."""
    warp, row = M[op + O_WARP], M[op + O_ROW]
    if M[H_LOG] == 2:
        log_op(M, P, L, op, LOG_TENSOR, begin, read, M[op + O_STAGE])
        log_op(M, P, L, op, LOG_COMPLETE, complete, complete, 0)
    if M[op + O_OWNER] == M[warp + W_OWNER] and M[warp + W_STATE] != ST_DEAD:
        cold = P[row + P_COLD]
        settle_counter(M, warp, P[cold + X_WRITE], complete)
        settle_counter(M, warp, P[cold + X_READ], read)
        if M[warp + W_STATE] == ST_PENDING:
            schedule(M, P, warp, t)
    end_op(M, P, op, read, complete, t)
    cta = M[warp + W_CTA]
    if M[cta + C_POOL_UNKNOWN] == 0 and M[cta + C_ARRIVED] == M[cta + C_LIVE]:
        check_meeting(M, P, cta, t)


def log_op(M: State, P: Program, L: State, op: int, kind: int, begin: int, end: int, stage: int) -> None:
    """Write a record about an operation."""
    warp, count = M[op + O_WARP], M[H_LOG_COUNT]
    record(M, P, L, warp, M[op + O_ROW], kind, begin, end, 0)
    if M[H_LOG_COUNT] != count:
        L[count * L_WORDS + L_STAGE] = stage
