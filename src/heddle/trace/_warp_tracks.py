"""Tracks of warps: runs of one tile operation, tiled without gaps, and inside them every wait and every issue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.metrics.stalls import stall_name
from heddle.sim.result import EventKind, Stall
from heddle.trace._slices import Detail, Slice, Track
from heddle.trace._wait_reasons import WaitReasons


def warp_tracks(events: NDArray[Any], program: WarpProgram, sm_name: str, slots: int) -> list[Track]:
    """Return one track a warp of one SM, grouped by role (and by CTA slot where the SM holds several)."""
    tracks = []
    for slot in range(slots):
        here = events[events["slot"] == slot]
        for role in program.roles:
            for warp in range(role.first_warp, role.first_warp + role.warps):
                mine = here[here["warp"] == warp]
                if not mine.size:
                    continue
                group = f"{role.name} (CTA slot {slot})" if slots > 1 else role.name
                track = Track((sm_name, group, f"warp {warp}"), description=f"role {role.name}, warp {warp} of the CTA")
                track.slices = warp_slices(mine, program)
                tracks.append(track)
    return tracks


def warp_slices(events: NDArray[Any], program: WarpProgram) -> list[Slice]:
    """Return the slices of one warp, outer ones before the inner ones that they contain."""
    issues = events[events["kind"] == EventKind.ISSUE]
    issues = issues[np.argsort(issues["begin"], kind="stable")]
    waits = _waits_by_pc(events[events["kind"] == EventKind.WAIT])
    reasons = WaitReasons(program)
    slices: list[Slice] = []
    run: list[Slice] = []
    label, run_begin, last_end = "", 0, -1
    for record in issues:
        pc, begin = int(record["pc"]), int(record["begin"])
        name = source_label(program, pc)
        if last_end < 0:  # first issue of the log: the time before it is not known to be this warp's
            run_begin = last_end = begin
        if name != label and run:
            slices += [Slice(run_begin, last_end, label), *run]
            run, run_begin = [], last_end
        label = name
        run += _logged(last_end, begin, waits.get(pc, [])) if waits else reasons.gap(last_end, begin, pc)
        reasons.issued(pc)
        run.append(Slice(begin, begin + 1, program.instructions[pc].op, _details(record, program)))
        last_end = begin + 1
        if OPCODES[program.instructions[pc].op].unit is Unit.EXIT:
            slices += [Slice(run_begin, last_end, label), *run]
            run, label, last_end = [], "", -1
    if run:
        slices += [Slice(run_begin, last_end, label), *run]
    return slices


def source_label(program: WarpProgram, pc: int) -> str:
    """Return "operation file:line" of an instruction, its opcode if it has no source."""
    source = program.instructions[pc].source
    if source >= len(program.sources):
        return program.instructions[pc].op
    place = program.sources[source]
    file = place.file.rsplit("/", 1)[-1]
    return f"{place.operation or program.instructions[pc].op} {file}:{place.line}"


def _waits_by_pc(waits: NDArray[Any]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the logged waits by the instruction that waits: (begin, end, reason)."""
    by_pc: dict[int, list[tuple[int, int, int]]] = {}
    for record in waits:
        by_pc.setdefault(int(record["pc"]), []).append(
            (int(record["begin"]), int(record["end"]), int(record["detail"]))
        )
    return by_pc


def _logged(begin: int, end: int, waits: list[tuple[int, int, int]]) -> Iterator[Slice]:
    """Yield the logged waits that lie between two issues."""
    for first, last, reason in waits:
        if first >= begin and last <= end:
            yield Slice(first, last, f"wait: {stall_name(Stall(reason))}")


def _details(record: Any, program: WarpProgram) -> dict[str, Detail]:
    instruction = program.instructions[int(record["pc"])]
    details: dict[str, Detail] = {"pc": int(record["pc"]), "item": int(record["item"])}
    if instruction.barrier is not None or instruction.effect is not None:
        details["stage"] = int(record["stage"])
    if int(record["detail"]):
        details["predicated off"] = "yes"
    return details
