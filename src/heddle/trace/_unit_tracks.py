"""Tracks of units and barriers: matrix units, bulk copies, loads and stores, other pipes, and mbarrier phases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.result import EventKind
from heddle.trace._slices import Slice, Track, in_lanes, in_sequence
from heddle.trace._warp_tracks import source_label

_COPIES = {
    Unit.BULK_LOAD: "TMA loads",
    Unit.BULK_STORE: "TMA stores",
    Unit.BULK_PEER: "TMA copies to the peer",
    Unit.GLOBAL: "global memory",
}


def unit_tracks(events: NDArray[Any], program: WarpProgram, machine: Machine, sm_name: str) -> list[Track]:
    """Return the tracks of the units of one SM that did anything."""
    group = (sm_name, "units")
    tracks = []
    tracks += _matrix_tracks(events[events["kind"] == EventKind.TENSOR], program, machine, group)
    tracks += _pipe_tracks(events, program, machine, group)
    flights: dict[str, list[Slice]] = {}
    for record in events[np.isin(events["kind"], [EventKind.COPY, EventKind.STORE])]:
        name = _COPIES[OPCODES[program.instructions[int(record["pc"])].op].unit]
        flights.setdefault(name, []).append(_span(record, program))
    for name in sorted(flights):
        tracks += in_lanes((*group, name), flights[name])
    return tracks


def _matrix_tracks(
    records: NDArray[Any], program: WarpProgram, machine: Machine, group: tuple[str, ...]
) -> list[Track]:
    """Return the track of the SM's matrix unit, or one for each subpartition's.

    These serve weft-level products and, idealised (`--oracle fs`), the parts that single warps have in a product.
    """
    units = [OPCODES[program.instructions[int(record["pc"])].op].unit for record in records]
    places = [int(record["warp"]) % machine.subpartitions for record in records]
    single = any(unit is Unit.WGMMA and place for unit, place in zip(units, places, strict=True))
    parts: dict[str, list[Slice]] = {}
    for record, unit, place in zip(records, units, places, strict=True):
        own = unit is Unit.WEFT_MMA or single
        name = f"tensor (subpartition {place})" if own else "tensor"
        parts.setdefault(name, []).append(_span(record, program))
    return [in_sequence((*group, name), slices) for name, slices in sorted(parts.items())]


def barrier_tracks(events: NDArray[Any], program: WarpProgram, sm_name: str) -> list[Track]:
    """Return one track an mbarrier element: its phases, each up to the completion that ended it."""
    phases: dict[tuple[int, int, int], list[int]] = {}
    for record in events[events["kind"] == EventKind.BARRIER]:
        key = (int(record["slot"]), int(record["detail"]), int(record["stage"]))
        phases.setdefault(key, []).append(int(record["begin"]))
    several = len({slot for slot, _, _ in phases}) > 1
    tracks = []
    for (slot, barrier, element), ends in sorted(phases.items()):
        name = f"{program.barriers[barrier].name}[{element}]" + (f" (CTA slot {slot})" if several else "")
        track = Track((sm_name, "barriers", name))
        begins = [0, *ends[:-1]]
        track.slices = [
            Slice(begin, end, f"phase {n}")
            for n, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if end > begin
        ]
        tracks.append(track)
    return tracks


def _span(record: Any, program: WarpProgram) -> Slice:
    """Return the time that an asynchronous operation takes, named by its line."""
    pc = int(record["pc"])
    instruction = program.instructions[pc]
    shape = "x".join(str(n) for n in instruction.shape) if instruction.shape else ""
    name = " ".join(part for part in (instruction.op, shape, source_label(program, pc)) if part)
    details: dict[str, str | int] = {"warp": int(record["warp"]), "pc": pc, "stage": int(record["stage"])}
    if instruction.bytes:
        details["bytes"] = instruction.bytes
    begin = int(record["begin"])
    return Slice(begin, max(begin + 1, int(record["end"])), name, details)


def _issued(record: Any, program: WarpProgram, begin: int, end: int) -> Slice:
    """Return the time that an instruction takes a pipe; a product is named by its line and has its warp."""
    pc = int(record["pc"])
    instruction = program.instructions[pc]
    if instruction.shape is None:
        return Slice(begin, end, instruction.op, {"pc": pc})
    return Slice(begin, end, f"{instruction.op} {source_label(program, pc)}", {"pc": pc, "warp": int(record["warp"])})


def _pipe_tracks(events: NDArray[Any], program: WarpProgram, machine: Machine, group: tuple[str, ...]) -> list[Track]:
    """Return the pipes that instructions occupy for a fixed time: one track a pipe (and subpartition)."""
    issues = events[(events["kind"] == EventKind.ISSUE) & (events["detail"] == 0)]
    busy: dict[tuple[str, int], list[Slice]] = {}
    for record in issues:
        pc = int(record["pc"])
        instruction = program.instructions[pc]
        if OPCODES[instruction.op].unit not in (Unit.FIXED, Unit.VARIABLE, Unit.SHARED):
            continue
        timing = machine.op_timing(
            instruction.op, form=instruction.form, dtype=instruction.dtype, shape=instruction.shape
        )
        of_subpartition = machine.pipes[timing.pipe].scope == "subpartition"
        part = int(record["warp"]) % machine.subpartitions if of_subpartition else -1
        begin = int(record["begin"])
        end = begin + max(1, -(-int(timing.initiation_cycles * 256) // 256))
        busy.setdefault((timing.pipe, part), []).append(_issued(record, program, begin, end))
    return [
        in_sequence((*group, f"{pipe} (subpartition {part})" if part >= 0 else pipe), slices)
        for (pipe, part), slices in sorted(busy.items())
    ]
