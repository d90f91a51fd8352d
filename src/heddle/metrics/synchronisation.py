"""Share of the warp cycles (of the CPI: every cycle of a warp has one state) in which warps wait for other warps.

Counted are waits at named and cluster barriers, for phases of mbarriers, for semaphores and, in mode fiber, for full
and empty bits and SETFIBER. Bulk copies, copies of tcgen05 and its products report through mbarriers, so waits for
data count there too, as in a profiler that samples the instruction. Waits for a warp's own wgmma do not count.
"""

from __future__ import annotations

from heddle.ir.warp import WarpProgram
from heddle.metrics.stalls import cycles_by_role
from heddle.sim.result import SimResult, Stall

SYNCHRONISATION = (
    *(Stall.BARRIER, Stall.MBARRIER, Stall.SEMAPHORE),
    *(Stall.POOL_EMPTY, Stall.POOL_FULL, Stall.FIBER_SYNC),
)
"""States in which a warp waits for others."""


def synchronisation(result: SimResult, program: WarpProgram) -> dict[str, object]:
    """Return `share` of all warp cycles, `by_role`, and `by_issue`: the shares of roles weighted by their instructions.

    Warps that mostly wait (loads, matrix instructions, stores) weigh in `share` as much as those that compute; in
    `by_issue` each role weighs as much as it issues.
    """
    accounts = cycles_by_role(result, program)
    waits = {role: int(sum(row[list(SYNCHRONISATION)])) for role, row in accounts.items()}
    totals = {role: int(row.sum()) for role, row in accounts.items()}
    issued = {role: int(row[Stall.SELECTED]) for role, row in accounts.items()}
    by_role = {role: waits[role] / totals[role] if totals[role] else 0.0 for role in accounts}
    all_issued = sum(issued.values())
    return {
        "share": sum(waits.values()) / max(1, sum(totals.values())),
        "by_issue": sum(by_role[role] * issued[role] for role in accounts) / max(1, all_issued),
        "by_role": by_role,
    }
