"""Tracks of warps: runs of one tile operation, tiled without gaps, and inside them every wait and every issue."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.sim.result import EventKind
from heddle.trace._gaps import Covered, Gaps
from heddle.trace._slices import Detail, Slice, Track


def warp_tracks(
    events: NDArray[Any], program: WarpProgram, sm_name: str, subpartitions: int, covered: Covered
) -> list[Track]:
    """Return one track a warp of one SM, grouped by role (and by CTA slot where the SM holds several)."""
    issues = events[events["kind"] == EventKind.ISSUE]
    part = issues["warp"] % subpartitions
    turns = [set(issues["begin"][part == p].tolist()) for p in range(subpartitions)]
    slots = int(events["slot"].max(initial=0)) + 1
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
                gaps = Gaps(mine[mine["kind"] == EventKind.WAIT], turns[warp % subpartitions], covered)
                track.slices = warp_slices(mine[mine["kind"] == EventKind.ISSUE], program, gaps)
                tracks.append(track)
    return tracks


def warp_slices(issues: NDArray[Any], program: WarpProgram, gaps: Gaps) -> list[Slice]:
    """Return the slices of one warp, outer ones before the inner ones that they contain."""
    slices: list[Slice] = []
    run: list[Slice] = []
    label, run_begin, last_end, previous = "", 0, 0, -1
    for record in issues[np.argsort(issues["begin"], kind="stable")]:
        pc, begin = int(record["pc"]), int(record["begin"])
        name = source_label(program, pc)
        if previous < 0:  # the first issue of a CTA's warp, or of the log
            run_begin = last_end = stall_end = gaps.resident(last_end, begin)
        else:
            stall_end = last_end - 1 + max(1, program.instructions[previous].control.stall)
        if name != label and run:
            slices += [Slice(run_begin, last_end, label), *run]
            run, run_begin = [], last_end
        label = name
        run += gaps.between(last_end, begin, stall_end)
        run.append(Slice(begin, begin + 1, program.instructions[pc].op, _details(record, program)))
        previous, last_end = pc, begin + 1
        if OPCODES[program.instructions[pc].op].unit is Unit.EXIT:
            slices += [Slice(run_begin, last_end, label), *run]
            run, label, previous = [], "", -1
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


def _details(record: Any, program: WarpProgram) -> dict[str, Detail]:
    instruction = program.instructions[int(record["pc"])]
    details: dict[str, Detail] = {"pc": int(record["pc"]), "item": int(record["item"])}
    if instruction.barrier is not None or instruction.effect is not None:
        details["stage"] = int(record["stage"])
    if int(record["detail"]):
        details["predicated off"] = "yes"
    return details
