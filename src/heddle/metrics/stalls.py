"""Where the warp cycles went: exact accounts by reason, role, instruction and source line.

The law: every resident warp is in exactly one state in every cycle, so each account sums to the warp cycles of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError
from heddle.ir.warp import WarpProgram
from heddle.sim.result import SimResult, Stall

FIBER_REASONS = frozenset({Stall.POOL_EMPTY, Stall.POOL_FULL, Stall.READ_PORT, Stall.FIBER_SYNC})
NOT_A_STALL = frozenset({"issued", "not_selected"})


def stall_name(reason: Stall) -> str:
    """Return the name in results: Nsight's spelling in lower case; the state of an issuing warp is "issued"."""
    return "issued" if reason is Stall.SELECTED else reason.name.lower()


def check_law(result: SimResult) -> None:
    """Raise InternalError unless every account sums to the resident warp cycles."""
    total, by_pc = int(result.stalls.sum()), int(result.stalls_pc.sum())
    if not total == by_pc == result.active_warp_cycles:
        raise InternalError(
            "stall accounts disagree: "
            f"{total} warp cycles by warp, {by_pc} by instruction, {result.active_warp_cycles} resident"
        )
    if (result.stalls < 0).any() or (result.stalls_pc < 0).any():
        raise InternalError("a stall account is negative")


def shares(cycles: NDArray[np.int64]) -> dict[str, float]:
    """Return the share of each state in one row of counts [Stall]; FIBER's reasons only where they occur."""
    total = int(cycles.sum())
    if not total:
        return {}
    return {stall_name(r): int(cycles[r]) / total for r in Stall if r not in FIBER_REASONS or cycles[r]}


def stalls_total(result: SimResult) -> dict[str, float]:
    """Return the share of each state over all warps."""
    return shares(result.stalls.sum(axis=0))


def cycles_by_role(result: SimResult, program: WarpProgram) -> dict[str, NDArray[np.int64]]:
    """Return warp cycles [Stall] of every role that ran."""
    accounts: dict[str, NDArray[np.int64]] = {}
    for index, role in enumerate(program.roles):
        rows = result.stalls[result.warp_role == index]
        if rows.size:
            accounts[role.name] = rows.sum(axis=0)
    return accounts


def stalls_by_role(result: SimResult, program: WarpProgram) -> dict[str, dict[str, float]]:
    """Return the share of each state within each role."""
    return {name: shares(row) for name, row in cycles_by_role(result, program).items()}


def issues_by_role(result: SimResult, program: WarpProgram) -> dict[str, int]:
    """Return the warp instructions that each role issued."""
    return {name: int(row[Stall.SELECTED]) for name, row in cycles_by_role(result, program).items()}


def by_instruction(result: SimResult, program: WarpProgram) -> list[dict[str, object]]:
    """Return one row an instruction: pc, op, source line, issues, warp cycles, share of all, and cycles by reason."""
    total = max(1, int(result.stalls_pc.sum()))
    return [
        {
            "pc": pc,
            "op": instruction.op,
            **_place(program, instruction.source),
            **_row(result.stalls_pc[pc], total),
        }
        for pc, instruction in enumerate(program.instructions)
    ]


def by_line(result: SimResult, program: WarpProgram) -> list[dict[str, object]]:
    """Return one row a source line and tile operation, in source order, with the same columns less pc and op."""
    groups: dict[tuple[str, int, str], NDArray[np.int64]] = {}
    for pc, instruction in enumerate(program.instructions):
        place = _place(program, instruction.source)
        key = (str(place["file"]), int(str(place["line"])), str(place["operation"]))
        groups[key] = groups.get(key, np.zeros(len(Stall), np.int64)) + _padded(result.stalls_pc[pc])
    total = max(1, int(result.stalls_pc.sum()))
    return [
        {"file": file, "line": line, "operation": operation, **_row(groups[file, line, operation], total)}
        for file, line, operation in sorted(groups)
    ]


def top_reasons(row: Mapping[str, float], count: int = 3) -> list[tuple[str, float]]:
    """Return the largest stall reasons of a row of shares, states that are no stall left out."""
    stalls: Iterable[tuple[str, float]] = ((n, s) for n, s in row.items() if n not in NOT_A_STALL and s > 0)
    return sorted(stalls, key=lambda pair: (-pair[1], pair[0]))[:count]


def _place(program: WarpProgram, source: int) -> dict[str, object]:
    if source >= len(program.sources):
        return {"file": "", "line": 0, "operation": ""}
    place = program.sources[source]
    return {"file": place.file, "line": place.line, "operation": place.operation}


def _padded(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    row = np.zeros(len(Stall), np.int64)
    row[: counts.size] = counts
    return row


def _row(counts: NDArray[np.int64], total: int) -> dict[str, object]:
    cycles = int(counts.sum())
    return {
        "issued": int(counts[Stall.SELECTED]),
        "warp_cycles": cycles,
        "share": cycles / total,
        "stalls": {stall_name(r): int(counts[r]) for r in Stall if r < counts.size and counts[r]},
    }
