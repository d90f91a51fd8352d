"""Why a case is off: what is known about its row, and what the simulation spent its time on.

`cases/reasons.csv` holds what people found out (one line a case or family); without an entry only the observation is
given, and it is worded as one: which limit the simulated run was at. An observation is not a cause.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from typing import Any

from heddle.study.agreement import Outcome
from heddle.study.case_file import OWN_CASES
from heddle.study.implementations import implementation

NO_STALL = ("issued", "not_selected")


@functools.cache
def known_reasons() -> Mapping[str, str]:
    """Return the reasons that people found, by case id or family."""
    path = OWN_CASES.parent / "reasons.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["case"]: row["reason"] for row in csv.DictReader(file)}


def reason(outcome: Outcome) -> str:
    """Return the known reason of a case or its family, and the observation of the simulated run."""
    known = known_reasons()
    found = known.get(outcome.case.case_id) or known.get(outcome.case.family, "")
    behind = implementation(outcome.case.family)
    what = "tile fixed" if behind.pins or behind.library else "measured so"
    known_more = f"{what}: {behind.why}" if behind.why else ""
    return "; ".join(part for part in (found, known_more, observation(outcome.row)) if part)


def observation(row: Mapping[str, Any]) -> str:
    """Say where a simulated run was: tensor use, DRAM bytes a second, the largest stall of its busiest role, the
    clock.
    """
    if not row:
        return ""
    dram_gbytes_per_s = row["traffic"]["dram_bytes"] / row["time_us"] / 1e3
    parts = [
        f"tensor use {100 * row['tensor_utilization']:.0f} %",
        f"DRAM {dram_gbytes_per_s:.0f} GB/s",
        *_largest_stall(row["stalls_by_role"]),
        f"at {row['clock_mhz']:.0f} MHz",
    ]
    return ", ".join(parts)


def largest_stalls(by_role: Mapping[str, Mapping[str, float]], most: int = 3) -> tuple[str, dict[str, float]]:
    """Return the role that issues most, whose waiting decides the time, and its largest stalls, at most so many."""
    if not by_role:
        return "", {}
    role = max(by_role, key=lambda name: by_role[name].get("issued", 0.0))
    stalls = {name: share for name, share in by_role[role].items() if name not in NO_STALL}
    return role, {name: stalls[name] for name in sorted(stalls, key=lambda stall: -stalls[stall])[:most]}


def _largest_stall(by_role: Mapping[str, Mapping[str, float]]) -> list[str]:
    role, stalls = largest_stalls(by_role, 1)
    return [f"{role} {name} {100 * share:.0f} %" for name, share in stalls.items()]
