"""The event heap: things that take effect at a future cycle, in the order (cycle, order of cause)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.sim.core.layout import (
    E_KIND,
    E_ROW,
    E_SEQUENCE,
    E_SM,
    E_TIME,
    E_WHERE,
    E_WORDS,
    ERROR_HEAP,
    H_ERROR,
    H_HEAP,
    H_HEAP_CAPACITY,
    H_HEAP_COUNT,
    H_SEQUENCE,
    INF,
)

State = NDArray[np.int64]
Program = NDArray[np.int64]


def next_event(M: State) -> int:
    """Return the cycle of the next event, INF if there is none."""
    if M[H_HEAP_COUNT] == 0:
        return INF
    return int(M[M[H_HEAP] + E_TIME])


def post(M: State, time: int, kind: int, where: int, row: int, sm: int) -> None:
    """Add an event; events of one cycle come out in the order in which they went in."""
    count = M[H_HEAP_COUNT]
    if count >= M[H_HEAP_CAPACITY]:
        M[H_ERROR] = ERROR_HEAP
        return
    base = M[H_HEAP]
    M[H_HEAP_COUNT] = count + 1
    sequence = M[H_SEQUENCE]
    M[H_SEQUENCE] = sequence + 1
    i = count
    while i > 0:
        parent = (i - 1) >> 1
        up = base + parent * E_WORDS
        if M[up + E_TIME] <= time:
            break
        here = base + i * E_WORDS
        for k in range(E_WORDS):
            M[here + k] = M[up + k]
        i = parent
    here = base + i * E_WORDS
    M[here + E_TIME] = time
    M[here + E_SEQUENCE] = sequence
    M[here + E_KIND] = kind
    M[here + E_WHERE] = where
    M[here + E_ROW] = row
    M[here + E_SM] = sm


def earlier(M: State, a: int, b: int) -> bool:
    """Tell whether the event at address a comes before the one at b."""
    if M[a + E_TIME] != M[b + E_TIME]:
        return bool(M[a + E_TIME] < M[b + E_TIME])
    return bool(M[a + E_SEQUENCE] < M[b + E_SEQUENCE])


def drop_first(M: State) -> None:
    """Remove the first event."""
    base = M[H_HEAP]
    count = M[H_HEAP_COUNT] - 1
    M[H_HEAP_COUNT] = count
    last = base + count * E_WORDS
    i = 0
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        at = base + child * E_WORDS
        if child + 1 < count and earlier(M, at + E_WORDS, at):
            child += 1
            at += E_WORDS
        if not earlier(M, at, last):
            break
        here = base + i * E_WORDS
        for k in range(E_WORDS):
            M[here + k] = M[at + k]
        i = child
    here = base + i * E_WORDS
    for k in range(E_WORDS):
        M[here + k] = M[last + k]
