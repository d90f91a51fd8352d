"""The end of FIBER-threads: their slot is free when nothing is in flight on their registers (fiber.md, section 3)."""

from __future__ import annotations

from heddle.sim.core.busy_bits import settle
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
    INF,
    K_CTAS,
    K_DRAINS,
    K_FREE,
    K_WORDS,
    S_INDEX,
    SUBPARTITIONS,
)
from heddle.sim.core.layout_fiber import (
    G4_WORDS,
    H_COLUMNS,
    H_DELAY,
    H_VECTORS,
    H_WARNING_COUNT,
    H_WARNING_ROOM,
    H_WARNINGS,
    N_COUNT,
    N_REGISTER,
    N_SLOT,
    N_SM,
    N_WORDS,
    NAMED_REGISTERS,
    PARTS,
    R_FULL,
    R_WORDS,
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


def end_drained(M: State, t: int) -> None:
    """At the end of cycle t, free the slots of ended clusters whose last operation has started by now."""
    M[H_DRAINING] = 0
    for i in range(M[H_CLUSTER_COUNT]):
        cluster = M[H_CLUSTERS] + i * K_WORDS
        if M[cluster + K_DRAINS] != 0:
            M[cluster + K_FREE] = max(M[cluster + K_FREE], t + 1)
            end_threads(M, cluster)


def clear_threads(M: State, cluster: int) -> None:
    """Note data that nobody has consumed, and clear all bits, in the cycle in which a cluster's slot is free."""
    cta = M[cluster + K_CTAS]
    for _ in range(M[H_CLUSTER_SIZE]):
        clear_thread(M, cta)
        cta += M[H_SLOTS] * C_WORDS


def clear_thread(M: State, cta: int) -> None:
    """Do so for one FIBER-thread."""
    first = M[cta + C_REGISTERS]
    count = SUBPARTITIONS * (M[H_VECTORS] + M[H_COLUMNS])
    warning = M[H_WARNINGS] + min(M[H_WARNING_COUNT], M[H_WARNING_ROOM]) * N_WORDS
    M[warning + N_COUNT] = 0
    for i in range(count):
        register = first + i * R_WORDS
        settle(M, register, INF)  # what is to come counts, too
        if is_held(M, register):
            if M[warning + N_COUNT] < NAMED_REGISTERS:
                M[warning + N_REGISTER + M[warning + N_COUNT]] = i
            M[warning + N_COUNT] += 1
        for k in range(R_WORDS):
            M[register + k] = 0
    if M[warning + N_COUNT] != 0:
        M[warning + N_SM], M[warning + N_SLOT] = M[M[cta + C_SM] + S_INDEX], M[cta + C_SLOT]
        M[H_WARNING_COUNT] += 1
    for k in range((M[H_WARPS_PER_CTA] + 3) // 4 * G4_WORDS):
        M[M[cta + C_QUADS] + k] = 0


def is_held(M: State, register: int) -> bool:
    """Tell whether a part of F is set."""
    full = 0
    for part in range(PARTS):
        full |= M[register + R_FULL + part]
    return bool(full & 1)
