"""Move later what programs of mode fiber add to the state (`shift`). Counterpart of `relative_fiber`."""

from __future__ import annotations

from heddle.sim.core.bits import rotated
from heddle.sim.core.heap import State
from heddle.sim.core.layout import (
    C_POOL_REST,
    C_REST,
    H_BITS,
    INF,
    Q_CLEARS,
    Q_CLEARS_NEXT,
    Q_CLEARS_USED,
    Q_SET_AT,
    Q_WORDS,
    S_DUE,
    S_INDEX,
    S_QUARTERS,
    S_WHEEL,
    SUBPARTITIONS,
    TICK_BITS,
    W_DENIED,
    W_OP_HEAD,
    W_OP_TAIL,
    W_SURE,
)
from heddle.sim.core.layout_fiber import (
    D_SLOT_WORDS,
    H_DELAY,
    H_QUEUES,
    O_END,
    O_START,
    QUEUED,
    V_FREE,
    V_SPAN,
    V_SPAN_HEAD,
    V_SPAN_TAIL,
    V_START,
    V_WORDS,
    WHEEL,
    Z_CLEAR,
    Z_SET,
    Z_USED,
)
from heddle.sim.core.matrix_ops import op_at


def later(M: State, at: int, now: int, by: int) -> None:
    """Move a time (cycles or ticks, as `now` and `by`) if it lies ahead and is known."""
    if now <= M[at] < INF:
        M[at] += by


def turn(M: State, first: int, by: int, step: int) -> None:
    """Turn the WHEEL words at `first`, `first` + step, ...: what was in slot i goes to slot i + by."""
    for _ in range(by & (WHEEL - 1)):
        carried = M[first + (WHEEL - 1) * step]
        for k in range(WHEEL):
            here = M[first + k * step]
            M[first + k * step] = carried
            carried = here


def shift_wheel(M: State, sm: int, t: int, cycles: int) -> None:
    """Move the changes of bits to come of an SM."""
    wheel = M[sm + S_WHEEL]
    turn(M, wheel + Z_CLEAR, cycles, 1)
    turn(M, wheel + Z_SET, cycles, 1)
    M[wheel + Z_USED] = rotated(M[wheel + Z_USED], -cycles & (WHEEL - 1))
    later(M, sm + S_DUE, t, cycles)


def shift_clears(M: State, sub: int, t: int, cycles: int) -> None:
    """Move the clears to come of a subpartition."""
    for k in range(D_SLOT_WORDS):
        turn(M, M[sub + Q_CLEARS] + k, cycles, D_SLOT_WORDS)
    M[sub + Q_CLEARS_USED] = rotated(M[sub + Q_CLEARS_USED], -cycles & (WHEEL - 1))
    later(M, sub + Q_CLEARS_NEXT, t, cycles)
    later(M, sub + Q_SET_AT, t - 1, cycles)


def shift_queue(M: State, queue: int, t: int, cycles: int) -> None:
    """Move the matrix queue of a subpartition."""
    now, ticks = t << TICK_BITS, cycles << TICK_BITS
    later(M, queue + V_FREE, now, ticks)
    for k in range(QUEUED):
        later(M, queue + V_START + k, now, ticks)
    for n in range(M[queue + V_SPAN_HEAD], M[queue + V_SPAN_TAIL]):
        span = queue + V_SPAN + 4 * (n & (QUEUED - 1))
        later(M, span, t, cycles)
        later(M, span + 1, t, cycles)


def shift_fiber_sm(M: State, sm: int, t: int, cycles: int) -> None:
    """Move what an SM has beside its subpartitions' units."""
    if M[H_BITS] != 0:
        shift_wheel(M, sm, t, cycles)
    first = M[H_QUEUES] + M[sm + S_INDEX] * SUBPARTITIONS * V_WORDS
    for k in range(SUBPARTITIONS):
        if M[H_BITS] != 0:
            shift_clears(M, sm + S_QUARTERS + k * Q_WORDS, t, cycles)
        shift_queue(M, first + k * V_WORDS, t, cycles)


def shift_weft(M: State, warp: int, t: int, cycles: int) -> None:
    """Move what a weft's context has beside a warp's, also if no weft is in it."""
    later(M, warp + W_SURE, t, cycles)
    later(M, warp + W_DENIED, t, cycles)
    for n in range(M[warp + W_OP_HEAD], M[warp + W_OP_TAIL]):
        op = op_at(M, warp, n)
        later(M, op + O_END, t, cycles)
        later(M, op + O_START, t << TICK_BITS, cycles << TICK_BITS)


def shift_thread(M: State, cta: int, t: int, cycles: int) -> None:
    """Move a FIBER-thread. What it waits for at its end is seen by all the delay of the bits later."""
    later(M, cta + C_REST, t - M[H_DELAY], cycles)
    later(M, cta + C_POOL_REST, t, cycles)
