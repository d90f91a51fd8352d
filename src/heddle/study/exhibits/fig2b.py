"""Figure 2(b): where the cycles of an instruction go in FlashAttention 2, 3 and 4.

Every cycle of a warp has one state, so the shares of the states are the stack; the CPI is warp cycles an issued
instruction. The paper does not say which warps it counts: `all` weighs warps alike, `by_issue` each role by what it
issues, so that warps that start copies and wait weigh little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.metrics.stalls import stall_name
from heddle.metrics.synchronisation import SYNCHRONISATION
from heddle.sim.result import Stall
from heddle.study import runs
from heddle.study.compare_all import BATCHES, SIZES
from heddle.study.exhibits._exhibit import Answer, Exhibit
from heddle.study.paper import figures
from heddle.study.pool import Progress, run_all
from heddle.study.requests import Request, request

KERNELS = {"FlashAttention 2": "a100", "FlashAttention 3": "h100", "FlashAttention 4": "b200"}
PARAMS = {**SIZES, "heads_kv": SIZES["heads_q"], "causal": 0, "batch": BATCHES[0]}

GROUPS: dict[str, tuple[Stall, ...]] = {
    "issued": (Stall.SELECTED,),
    "not selected": (Stall.NOT_SELECTED,),
    "fixed latency": (Stall.WAIT, Stall.BRANCH_RESOLVING, Stall.NO_INSTRUCTION, Stall.DRAIN),
    "memory": (Stall.LONG_SCOREBOARD, Stall.SHORT_SCOREBOARD, Stall.MIO_THROTTLE, Stall.LG_THROTTLE),
    "pipes and register ports": (Stall.MATH_PIPE_THROTTLE, Stall.DISPATCH_STALL, Stall.READ_PORT),
    "products": (Stall.GMMA, Stall.MATRIX_SCOREBOARD),
    "synchronisation": SYNCHRONISATION,
}
"""States by what they are spent on; each state is in one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One kernel: its name and the question."""

    kernel: str
    asked: Request


def stacks(
    params: Mapping[str, Any] = PARAMS, *, jobs: int | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return one row a kernel (docs/reference/results.md)."""
    bars = [
        Bar(kernel=name, asked=request("attention", gpu, simulation="representative", texts=params))
        for name, gpu in KERNELS.items()
    ]
    return run_all(_row, bars, jobs=jobs, progress=progress)


def _row(bar: Bar) -> dict[str, Any]:
    result = runs.run(bar.asked)
    architecture = bar.asked.machine.architecture
    return {
        "kernel": bar.kernel,
        "gpu": bar.asked.machine.name,
        "config": str(result["params"]["config"]),
        "cycles": result["cycles"],
        "tensor_utilization": result["tensor_utilization"],
        "all": stack(result["stalls"]),
        "by_issue": stack(by_issue(result)),
        "synchronisation_by_role": {
            role: stack(shares)["shares"]["synchronisation"] for role, shares in result["stalls_by_role"].items()
        },
        "paper": dict(figures()["profile"].get(architecture, {}).get("synchronisation", {})),
    }


def stack(shares: Mapping[str, float]) -> dict[str, Any]:
    """Return `cpi`, warp cycles an issued instruction, and the `shares` of the groups, which sum to one."""
    grouped = {group: sum(shares.get(stall_name(state), 0.0) for state in states) for group, states in GROUPS.items()}
    return {"cpi": 1.0 / grouped["issued"] if grouped["issued"] else None, "shares": grouped}


def by_issue(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of each state, roles weighted by the instructions that they issue."""
    issued = result["instructions"]["by_role"]
    total = sum(issued.values()) or 1
    found: dict[str, float] = {}
    for role, shares in result["stalls_by_role"].items():
        for state, share in shares.items():
            found[state] = found.get(state, 0.0) + share * issued[role] / total
    return found


def _answer(jobs: int | None, progress: Progress | None) -> Answer:
    return {"params": dict(PARAMS), "rows": stacks(jobs=jobs, progress=progress)}


FIG2B = Exhibit(name="fig2b", title="CPI of FlashAttention 2, 3 and 4", where="Fig. 2(b), introduction", answer=_answer)
