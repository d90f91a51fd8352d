"""Matrix instructions of a weft in flight: whose write-back clears E, and which accumulators need no test of E.

docs/reference/fiber.md, section 3, rules 1 and 3.
"""

from __future__ import annotations

from heddle.sim.core.bit_changes import begin_bits, consume_bits, note_end, views_of
from heddle.sim.core.bit_wheel import rouse_waiters, send, send_now
from heddle.sim.core.bit_words import part_of
from heddle.sim.core.bits import cold, ctz, span
from heddle.sim.core.heap import Program, State, post
from heddle.sim.core.layout import (
    C_POOL_UNKNOWN,
    C_UNKNOWN,
    ERROR_OPERATIONS,
    EV_WRITE_BACK,
    H_ERROR,
    INF,
    Q_BIT_WAIT,
    Q_LAST,
    Q_LAST_ROW,
    Q_SET_AT,
    Q_WARPS,
    W_CTA,
    W_ITEM_INDEX,
    W_OP_HEAD,
    W_OP_TAIL,
    W_OPS,
    W_OWNER,
    W_REGISTERS,
    W_SM,
    W_SUB,
    W_VIEW_OWN,
    W_WORDS,
)
from heddle.sim.core.layout_fiber import (
    FLAG_LOCAL,
    FLAG_PLAIN,
    FLAG_READS,
    FLAG_READS_POOL,
    FLAG_WRITES_POOL,
    H_BITS_CLEARED,
    H_DELAY,
    O_COUNT,
    O_DROP,
    O_END,
    O_FIRST,
    O_FLAGS,
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
    WHAT_PLACE_SHIFT,
    Y_DST,
    Y_FLAGS,
)
from heddle.sim.core.registers import count_of, fiber_row, number_of, own_place, place_bits


def op_at(M: State, warp: int, n: int) -> int:
    """Return the address of the n-th matrix operation of a context."""
    return int(M[warp + W_OPS] + (n & (OPS - 1)) * O_WORDS)


def is_under_way(M: State, warp: int, op: int, t: int) -> bool:
    """Tell whether an operation of the weft that runs in this context has not written back before cycle t."""
    return bool(M[op + O_END] > t and M[op + O_OWNER] == M[warp + W_OWNER])


def not_accumulated(M: State, warp: int, word: int, bits: int, t: int) -> int:
    """Return those of a word's registers to which no matrix instruction of the weft is on its way in cycle t."""
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        op = op_at(M, warp, n)
        first, count = M[op + O_FIRST], M[op + O_COUNT]
        if is_under_way(M, warp, op, t) and first < (word + 1) << 6 and first + count > word << 6:
            bits &= ~part_of(first, count, word)
    return bits


def supersede(M: State, op: int, first: int, count: int) -> None:
    """Let a younger matrix instruction clear E of those registers of an older one that it writes."""
    begin = max(first - M[op + O_FIRST], 0)
    end = min(first + count - M[op + O_FIRST], M[op + O_COUNT])
    if begin < end:
        for word in range(begin >> 6, (end + 63) >> 6):
            M[op + O_DROP + word] |= part_of(begin, end - begin, word)


def begin_op(M: State, P: Program, warp: int, row: int, t: int) -> int:
    """Take a matrix instruction that issues in cycle t into the ring of its weft; return its address."""
    fiber = fiber_row(M, row)
    begin_bits(M, P, warp, fiber, t)
    while M[warp + W_OP_HEAD] < M[warp + W_OP_TAIL] and M[op_at(M, warp, M[warp + W_OP_HEAD]) + O_END] <= t:
        M[warp + W_OP_HEAD] += 1
    dst = P[fiber + Y_DST]
    first, count = number_of(dst), count_of(dst)
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        older = op_at(M, warp, n)
        if dst != 0 and is_under_way(M, warp, older, t):
            supersede(M, older, first, count)
    if M[warp + W_OP_TAIL] - M[warp + W_OP_HEAD] >= OPS:
        M[H_ERROR] = ERROR_OPERATIONS
    op = op_at(M, warp, M[warp + W_OP_TAIL])
    M[warp + W_OP_TAIL] += 1
    for k in range(O_WORDS):
        M[op + k] = 0
    M[op + O_FIRST], M[op + O_COUNT] = first, count
    M[op + O_END], M[op + O_OWNER] = INF, M[warp + W_OWNER]
    M[op + O_ROW], M[op + O_ISSUED], M[op + O_WARP] = row, t, warp
    M[op + O_GROUP], M[op + O_NUMBER], M[op + O_START] = -1, -1, INF
    M[op + O_ITEM], M[op + O_FLAGS] = M[warp + W_ITEM_INDEX], P[fiber + Y_FLAGS]
    count_unknown(M, P, warp, fiber, 1)
    return op


def count_unknown(M: State, P: Program, warp: int, fiber: int, by: int) -> None:
    """Count operations of a FIBER-thread whose end is not known."""
    cta, flags = M[warp + W_CTA], P[fiber + Y_FLAGS]
    if P[fiber + Y_DST] != 0 or flags & FLAG_READS:
        M[cta + C_UNKNOWN] += by
    if flags & (FLAG_READS_POOL | FLAG_WRITES_POOL):
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


def write_back(M: State, P: Program, op: int, t: int) -> None:
    """Clear E of the accumulators of an operation in the cycle of its write-back, but for those that it left alone."""
    begin, count = 0, M[op + O_COUNT]
    while begin < count:
        word = begin >> 6
        kept = ~M[op + O_DROP + word] & part_of(begin, count - begin, word)
        if kept == 0:
            begin = (word + 1) << 6
            continue
        begin = (word << 6) + ctz(kept)
        stop = M[op + O_DROP + word] & span(begin & 63, 63)
        end = (word << 6) + (ctz(stop) if stop != 0 else 64)
        clear_accumulators(M, P, op, M[op + O_FIRST] + begin, min(end, count) - begin, t)
        begin = end


def clear_accumulators(M: State, P: Program, op: int, first: int, count: int, t: int) -> None:
    """Clear E of some accumulators of an operation, seen from cycle t on in its own subpartition."""
    M[H_BITS_CLEARED] += count
    if M[op + O_FLAGS] & FLAG_PLAIN:
        for word in range(first >> 6, (first + count + 63) >> 6):
            clear_own(M, P, M[op + O_WARP], word, part_of(first, count, word), t)
        return
    warp, later = M[op + O_WARP], M[H_DELAY]
    place, sm, views = own_place(M, warp), M[warp + W_SM], views_of(M, warp, M[op + O_FLAGS] & FLAG_LOCAL)
    what, own = place << WHAT_PLACE_SHIFT, 1 << place
    for word in range(first >> 6, (first + count + 63) >> 6):
        at, part = place_bits(M, warp, place) + word, part_of(first, count, word)
        if later == 0 or views == own:
            send_now(M, sm, at, part, what | views, 0, t)
        else:
            send_now(M, sm, at, part, what | own, 0, t)
            send(M, sm, at, part, what | (views & ~own), 0, t + later, t)


def clear_own(M: State, P: Program, warp: int, number: int, part: int, t: int) -> None:
    """Clear E of registers of a word, in the weft's own subpartition alone, but for what an issue has just set."""
    sub, word = M[warp + W_SUB], M[warp + W_VIEW_OWN] + number
    if M[sub + Q_SET_AT] == t - 1:
        part &= ~just_set(M, P, sub, warp, number)
    M[word] &= ~part
    if M[sub + Q_BIT_WAIT] != 0:
        rouse_waiters(M, sub, word, part, t)


@cold
def just_set(M: State, P: Program, sub: int, warp: int, number: int) -> int:
    """Return which registers of a word of the weft's FIBER-thread the last issue of its subpartition has set."""
    last = M[sub + Q_WARPS] + M[sub + Q_LAST] * W_WORDS
    group = P[fiber_row(M, M[sub + Q_LAST_ROW]) + Y_DST]
    first, count = number_of(group), count_of(group)
    if M[last + W_REGISTERS] != M[warp + W_REGISTERS] or first >= (number + 1) << 6 or first + count <= number << 6:
        return 0
    return part_of(first, count, number)


def end_collective(M: State, P: Program, warp: int, n: int, read: int, written: int, t: int) -> None:
    """Tell when the n-th warp-group instruction of a weft has read its operands and when its result is there."""
    for k in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        op = op_at(M, warp, k)
        if M[op + O_NUMBER] == n and M[op + O_END] >= INF and M[op + O_OWNER] == M[warp + W_OWNER]:
            end_op(M, P, op, read, written, t)
