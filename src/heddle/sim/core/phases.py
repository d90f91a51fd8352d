"""Phases of mbarriers, and of the rings that ask for them, in the state of the fast-forward.

Who waits for an mbarrier compares its parity with that of a ring. Nothing changes if both are the other way round, so
that the state holds parities relative to one mbarrier of those that rings connect (their *root*), and a period in which
the phases advance by an odd number is one. After a jump all of them are what they would have been.
"""

from __future__ import annotations

from heddle.sim.core.heap import State
from heddle.sim.core.layout import (
    B_PARITY,
    B_WAITERS,
    B_WORDS,
    C_MBARRIERS,
    C_WORDS,
    H_CTAS,
    H_FIBER,
    H_MB,
    H_MBARRIERS,
    H_ROOTS,
    H_SLOTS,
    H_SMS,
    H_WARP_COUNT,
    H_WARPS,
    PHASE_ABSOLUTE,
    PHASE_UNASKED,
    RINGS,
    W_ASK,
    W_LINK,
    W_PARITY,
    W_ROLE,
    W_WORDS,
)
from heddle.sim.core.layout_fiber import H_OWNERS


def relative_phase(M: State, parity: int, root: int) -> int:
    """Return a parity relative to its root; 0 if nobody asks for it."""
    if root == PHASE_UNASKED:
        return 0
    return parity ^ M[M[H_MB] + root * B_WORDS + B_PARITY] if root != PHASE_ABSOLUTE else parity


def root_of_ring(M: State, ring: int) -> int:
    """Return the mbarrier that stands for a ring, PHASE_ABSOLUTE or PHASE_UNASKED."""
    return int(M[M[H_ROOTS] + M[H_MBARRIERS] + ring])


def relative_ring_phase(M: State, warp: int, ring: int) -> int:
    """Return the parity of a warp's ring relative to its root; 0 if the warp's role does not ask for it."""
    asked = M[M[H_ROOTS] + M[H_MBARRIERS] + RINGS + M[warp + W_ROLE]]
    return relative_phase(M, M[warp + W_PARITY + ring], root_of_ring(M, ring)) if (asked >> ring) & 1 else 0


def copy_phases(M: State, F: State, at: int) -> int:
    """Write the parities of the first CTA's mbarriers, and how many warps have started; return the next free place."""
    for i in range(M[H_MBARRIERS]):
        F[at + i] = M[M[H_MB] + i * B_WORDS + B_PARITY]
    F[at + M[H_MBARRIERS]] = M[H_OWNERS]
    return int(at + M[H_MBARRIERS] + 1)


def phases_allow(M: State, F: State, at: int) -> bool:
    """Tell whether what was done since `copy_phases` can be repeated: a weft that starts has a certain phase."""
    changed = 0
    for i in range(M[H_MBARRIERS]):
        changed |= F[at + i] ^ M[M[H_MB] + i * B_WORDS + B_PARITY]
    return bool(M[H_FIBER] == 0 or changed == 0 or F[at + M[H_MBARRIERS]] == M[H_OWNERS])


def repeat_phases(M: State, F: State, at: int, periods: int) -> int:
    """Let the phases advance by what they have since `copy_phases`, `periods` times; return the next place."""
    for i in range(M[H_MBARRIERS]):
        F[at + i] = (F[at + i] ^ M[M[H_MB] + i * B_WORDS + B_PARITY]) & periods & 1
    for i in range(M[H_WARP_COUNT]):
        for ring in range(RINGS):
            root = root_of_ring(M, ring)
            if root >= 0:
                M[M[H_WARPS] + i * W_WORDS + W_PARITY + ring] ^= F[at + root]
    for i in range(M[H_SMS] * M[H_SLOTS]):
        for k in range(M[H_MBARRIERS]):
            root = M[M[H_ROOTS] + k]
            if root >= 0 and F[at + root] != 0:
                flip(M, M[M[H_CTAS] + i * C_WORDS + C_MBARRIERS] + k * B_WORDS)
    return int(at + M[H_MBARRIERS] + 1)


def flip(M: State, barrier: int) -> None:
    """Turn the parity of an mbarrier, and of those who wait for it, the other way round."""
    M[barrier + B_PARITY] ^= 1
    warp = M[barrier + B_WAITERS]
    while warp != 0:
        M[warp + W_ASK] ^= 1
        warp = M[warp + W_LINK]
