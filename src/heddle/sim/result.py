"""What a simulation returns: cycles, exact stall accounting, pipe use, traffic, and (on request) the event log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Stall(IntEnum):
    """States of a resident warp; for every warp and cycle exactly one holds. Nsight's names where the reason exists
    there.
    """

    SELECTED = 0  # issued
    NOT_SELECTED = 1  # ready, another warp of the subpartition issued
    WAIT = 2  # stall count of the previous instruction
    LONG_SCOREBOARD = 3  # dependence counter or group of a global-memory operation
    SHORT_SCOREBOARD = 4  # dependence counter of shared memory, MUFU, SHFL, tensor memory
    MATH_PIPE_THROTTLE = 5  # math pipe busy
    MIO_THROTTLE = 6  # load/store, shared memory or bulk-copy queue full
    LG_THROTTLE = 7  # global-memory queue full
    DISPATCH_STALL = 8  # register read ports taken
    BARRIER = 9  # named barrier or cluster barrier
    MBARRIER = 10  # mbarrier phase (no Nsight name of its own)
    GMMA = 11  # wgmma group, wgmma queue or warp-group arrive
    MATRIX_SCOREBOARD = 12  # dependence counter of an HMMA
    BRANCH_RESOLVING = 13  # after a taken branch
    NO_INSTRUCTION = 14  # CTA launched, first instruction not fetched
    SEMAPHORE = 15  # global semaphore
    DRAIN = 16  # exited, stores outstanding, or a bulk-store wait
    # FIBER (not used by SIMT programs)
    POOL_EMPTY = 17
    POOL_FULL = 18
    READ_PORT = 19
    FIBER_SYNC = 20


class EventKind(IntEnum):
    """Kinds of log records. ISSUE: begin = issue cycle, end = begin + 1; the others are spans of asynchronous work."""

    ISSUE = 0
    TENSOR = 1  # a matrix instruction occupies the matrix unit; end = operands read; complete = end + tail
    COPY = 2  # a bulk copy, cp.async or global load: begin = issue, end = data landed
    STORE = 3  # begin = issue, end = source read
    BARRIER = 4  # an mbarrier phase completes (begin = end)
    WAIT = 5  # a warp waited: reason in `detail`
    COMPLETE = 6  # result of an asynchronous matrix instruction is visible


EVENT = np.dtype(
    [
        ("kind", "i1"),
        ("sm", "i2"),
        ("slot", "i2"),
        ("warp", "i2"),
        ("pc", "i4"),
        ("item", "i4"),
        ("begin", "i8"),
        ("end", "i8"),
        ("detail", "i4"),
        ("stage", "i2"),
        ("counters", "i4", (4,)),
    ]
)
"""Log record. `warp` is the index in the CTA; `slot` the CTA slot of the SM; `detail`: Stall of a WAIT, barrier of a
BARRIER.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberCounts:
    """What happened in the register files of the simulated SMs, in a program of mode fiber (fiber.md, section 7)."""

    crossbar_reads: int  # vector registers read from another subpartition
    port_denials: int  # cycles in which the arbiter denied a selected weft
    shared_reads: int  # register reads that no port was charged for (multicast)
    bits_set: int  # E and F, by register, at issues
    bits_cleared: int  # E and F, by register, at write-backs, consumptions and DEPBAR.BIT


@dataclass(slots=True, kw_only=True)
class SimResult:
    """Result of `heddle.simulate`. Arrays are over the simulated SMs only (one cluster in representative mode).

    Invariant: stalls[warp].sum() == resident cycles of that warp context; stalls_pc has the same total.
    """

    cycles: int  # from the first CTA's launch to the last store's completion, without launch overhead
    sm_cycles: int  # simulated SMs x cycles
    warp_instructions: int
    stalls: NDArray[np.int64]  # [warp context, Stall]
    warp_role: NDArray[np.int64]  # [warp context] index into program.roles
    stalls_pc: NDArray[np.int64]  # [pc, Stall]; column SELECTED counts issues
    pipe_busy: dict[str, float]  # pipe -> busy cycles summed over its instances
    pipe_instances: dict[str, int]
    tensor_busy_cycles: float  # summed over simulated SMs
    issue_slots_used: int
    active_warp_cycles: int
    dram_read_bytes: int  # whole chip
    dram_write_bytes: int
    l2_read_bytes: int
    l2_write_bytes: int
    shared_bytes: int  # simulated SMs
    simulated_sms: int
    fast_forwarded_cycles: int = 0
    clock_mhz: float = 0.0
    mode: str = "representative"  # or "chip", "sm"
    log: NDArray[Any] | None = None  # dtype EVENT
    repeats: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # fast-forward: (begin, end, times) in cycles of the log
    item_done_cycles: NDArray[np.int64] | None = None
    fiber: FiberCounts | None = None
    warnings: list[str] = field(default_factory=list)  # what a program should not do, though it ran
