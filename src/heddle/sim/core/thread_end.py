"""The end of FIBER-threads: their slot is free when nothing is in flight on their registers (fiber.md, section 3)."""

from __future__ import annotations

from heddle.sim.core.bit_wheel import forget_thread
from heddle.sim.core.bits import cold, ctz, drop_lowest, popcount
from heddle.sim.core.heap import State, post
from heddle.sim.core.layout import (
    C_QUADS,
    C_REGISTERS,
    C_REST,
    C_SLOT,
    C_SM,
    C_UNKNOWN,
    C_WORDS,
    EV_LAUNCH,
    H_CLUSTER_COUNT,
    H_CLUSTER_SIZE,
    H_CLUSTERS,
    H_DRAINING,
    H_SLOTS,
    H_WARPS_PER_CTA,
    K_CTAS,
    K_DRAINS,
    K_FREE,
    K_WORDS,
    S_INDEX,
    SUBPARTITIONS,
)
from heddle.sim.core.layout_fiber import (
    BIT_WORDS,
    G4_WORDS,
    H_DELAY,
    H_WARNING_COUNT,
    H_WARNING_ROOM,
    H_WARNINGS,
    N_COUNT,
    N_REGISTER,
    N_SLOT,
    N_SM,
    N_WORDS,
    NAMED_REGISTERS,
    PLACE_NUMBERS,
    PLACE_WORDS,
    ROW_ANY,
    TENSOR_FIRST,
    THREAD_WORDS,
)


def end_threads(M: State, cluster: int) -> None:
    """Free the slot of a cluster whose wefts have all ended, once it is known when its registers are at rest."""
    cta = M[cluster + K_CTAS]
    for _ in range(M[H_CLUSTER_SIZE]):
        if M[cta + C_UNKNOWN] != 0:
            M[cluster + K_DRAINS] = 1
            M[H_DRAINING] = 1
            return
        M[cluster + K_FREE] = max(M[cluster + K_FREE], M[cta + C_REST] + M[H_DELAY])
        cta += M[H_SLOTS] * C_WORDS
    M[cluster + K_DRAINS] = 0
    post(M, M[cluster + K_FREE], EV_LAUNCH, cluster, 0, 0)


@cold
def end_drained(M: State, t: int) -> None:
    """At the end of cycle t, free the slots of ended clusters whose last operation has started by now."""
    M[H_DRAINING] = 0
    for i in range(M[H_CLUSTER_COUNT]):
        cluster = M[H_CLUSTERS] + i * K_WORDS
        if M[cluster + K_DRAINS] != 0:
            M[cluster + K_FREE] = max(M[cluster + K_FREE], t + 1)
            end_threads(M, cluster)


def clear_threads(M: State, cluster: int, t: int) -> None:
    """Note data that nobody has consumed, and clear all bits, in cycle t, in which a cluster's slot is free."""
    cta = M[cluster + K_CTAS]
    for _ in range(M[H_CLUSTER_SIZE]):
        clear_thread(M, cta, t)
        cta += M[H_SLOTS] * C_WORDS


def clear_thread(M: State, cta: int, t: int) -> None:
    """Do so for one FIBER-thread."""
    thread = M[cta + C_REGISTERS]
    forget_thread(M, M[cta + C_SM], thread, t)  # what is to come counts, too
    warning = M[H_WARNINGS] + min(M[H_WARNING_COUNT], M[H_WARNING_ROOM]) * N_WORDS
    M[warning + N_COUNT] = 0
    vector_words = TENSOR_FIRST >> 6
    for place in range(SUBPARTITIONS):
        note_held(M, warning, thread, place, 0, vector_words)
    for place in range(SUBPARTITIONS):
        note_held(M, warning, thread, place, vector_words, BIT_WORDS)
    for k in range(THREAD_WORDS):
        M[thread + k] = 0
    if M[warning + N_COUNT] != 0:
        M[warning + N_SM], M[warning + N_SLOT] = M[M[cta + C_SM] + S_INDEX], M[cta + C_SLOT]
        M[H_WARNING_COUNT] += 1
    for k in range((M[H_WARPS_PER_CTA] + 3) // 4 * G4_WORDS):
        M[M[cta + C_QUADS] + k] = 0


def note_held(M: State, warning: int, thread: int, place: int, first_word: int, end_word: int) -> None:
    """Add the full registers of some words of a place to a warning."""
    row = thread + place * PLACE_WORDS + ROW_ANY * BIT_WORDS
    for word in range(first_word, end_word):
        rest = M[row + word]
        count = M[warning + N_COUNT]
        M[warning + N_COUNT] = count + popcount(rest)
        while rest != 0 and count < NAMED_REGISTERS:
            M[warning + N_REGISTER + count] = place * PLACE_NUMBERS + (word << 6) + ctz(rest)
            count += 1
            rest = drop_lowest(rest)
