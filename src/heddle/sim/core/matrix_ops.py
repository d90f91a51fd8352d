"""Matrix instructions of a weft in flight: whose write-back clears E, and which accumulators need no test of E.

docs/reference/fiber.md, section 3, rules 1 and 3.
"""

from __future__ import annotations

from heddle.sim.core.bit_changes import begin_bits, consume_bits, has_sources, note_end, reads_pool
from heddle.sim.core.bits import bit
from heddle.sim.core.busy_bits import add_change, empty_change
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    C_POOL_UNKNOWN,
    C_UNKNOWN,
    ERROR_OPERATIONS,
    EV_WRITE_BACK,
    H_ERROR,
    INF,
    Q_INDEX,
    W_CTA,
    W_ITEM_INDEX,
    W_OP_HEAD,
    W_OP_TAIL,
    W_OPS,
    W_OWNER,
    W_SM,
    W_SUB,
)
from heddle.sim.core.layout_fiber import (
    ALL_VIEWS,
    H_BITS_CLEARED,
    O_COUNT,
    O_DROP,
    O_END,
    O_FIRST,
    O_GROUP,
    O_ISSUED,
    O_ITEM,
    O_NUMBER,
    O_OWNER,
    O_ROW,
    O_START,
    O_WARP,
    O_WORDS,
    OPS,
    R_WORDS,
    Y_DST,
)
from heddle.sim.core.registers import count_of, fiber_row, first_of, in_pool


def op_at(M: State, warp: int, n: int) -> int:
    """Return the address of the n-th matrix operation of a context."""
    return int(M[warp + W_OPS] + (n & (OPS - 1)) * O_WORDS)


def accumulates(M: State, warp: int, register: int, t: int) -> bool:
    """Tell whether a matrix instruction of the weft is on its way to a register in cycle t."""
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        op = op_at(M, warp, n)
        if M[op + O_END] > t and M[op + O_OWNER] == M[warp + W_OWNER]:
            first = M[op + O_FIRST]
            if first <= register and register < first + M[op + O_COUNT] * R_WORDS:
                return True
    return False


def supersede(M: State, op: int, first: int, end: int) -> None:
    """Let a younger matrix instruction clear E of those registers of an older one that it writes."""
    begin = max(M[op + O_FIRST], first)
    while begin < min(M[op + O_FIRST] + M[op + O_COUNT] * R_WORDS, end):
        i = (begin - M[op + O_FIRST]) // R_WORDS
        M[op + O_DROP + (i >> 6)] |= bit(i & 63)
        begin += R_WORDS


def begin_op(M: State, P: Program, warp: int, row: int, t: int) -> int:
    """Take a matrix instruction that issues in cycle t into the ring of its weft; return its address."""
    fiber = fiber_row(M, row)
    begin_bits(M, P, warp, fiber, t)
    while M[warp + W_OP_HEAD] < M[warp + W_OP_TAIL] and M[op_at(M, warp, M[warp + W_OP_HEAD]) + O_END] <= t:
        M[warp + W_OP_HEAD] += 1
    dst = P[fiber + Y_DST]
    first = first_of(M, warp, dst) if dst != 0 else 0
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        older = op_at(M, warp, n)
        if dst != 0 and M[older + O_END] > t and M[older + O_OWNER] == M[warp + W_OWNER]:
            supersede(M, older, first, first + count_of(dst) * R_WORDS)
    if M[warp + W_OP_TAIL] - M[warp + W_OP_HEAD] >= OPS:
        M[H_ERROR] = ERROR_OPERATIONS
    op = op_at(M, warp, M[warp + W_OP_TAIL])
    M[warp + W_OP_TAIL] += 1
    for k in range(O_WORDS):
        M[op + k] = 0
    M[op + O_FIRST], M[op + O_COUNT] = first, count_of(dst)
    M[op + O_END], M[op + O_OWNER] = INF, M[warp + W_OWNER]
    M[op + O_ROW], M[op + O_ISSUED], M[op + O_WARP] = row, t, warp
    M[op + O_GROUP], M[op + O_NUMBER], M[op + O_START] = -1, -1, INF
    M[op + O_ITEM] = M[warp + W_ITEM_INDEX]
    count_unknown(M, P, warp, fiber, 1)
    return op


def count_unknown(M: State, P: Program, warp: int, fiber: int, by: int) -> None:
    """Count operations of a FIBER-thread whose end is not known."""
    cta, dst = M[warp + W_CTA], P[fiber + Y_DST]
    if dst != 0 or has_sources(P, fiber):
        M[cta + C_UNKNOWN] += by
    if (dst != 0 and in_pool(M, warp, dst)) or reads_pool(M, P, warp, fiber):
        M[cta + C_POOL_UNKNOWN] += by


def end_op(M: State, P: Program, op: int, read: int, written: int, t: int) -> None:
    """Tell in cycle t when the operands of a matrix operation are read and when its result is there."""
    warp, fiber = M[op + O_WARP], fiber_row(M, M[op + O_ROW])
    read = max(read, t + 1)
    written = max(written, read)
    M[op + O_END] = written
    consume_bits(M, P, warp, fiber, read, t)
    count_unknown(M, P, warp, fiber, -1)
    note_end(M, P, warp, fiber, read, written)
    if M[op + O_COUNT] != 0:
        post(M, written, EV_WRITE_BACK, op, 0, 0)


def write_back(M: State, op: int, t: int) -> None:
    """Clear E of the accumulators of an operation in the cycle of its write-back."""
    warp = M[op + O_WARP]
    change = empty_change(M, t, 0, M[M[warp + W_SUB] + Q_INDEX], ALL_VIEWS)
    for i in range(M[op + O_COUNT]):
        if (M[op + O_DROP + (i >> 6)] >> (i & 63)) & 1 == 0:
            add_change(M, M[op + O_FIRST] + i * R_WORDS, change, M[warp + W_SM], t)
            M[H_BITS_CLEARED] += 1


def end_collective(M: State, P: Program, warp: int, n: int, read: int, written: int, t: int) -> None:
    """Tell when the n-th warp-group instruction of a weft has read its operands and when its result is there."""
    for k in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        op = op_at(M, warp, k)
        if M[op + O_NUMBER] == n and M[op + O_END] >= INF and M[op + O_OWNER] == M[warp + W_OWNER]:
            end_op(M, P, op, read, written, t)
