"""Write the timeline of a run: a track a warp, unit and barrier, labelled by source line.

How to read it: docs/howto/read_a_trace.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.files import written_whole
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.metrics.provenance import heddle_version, machine_hash, program_hash
from heddle.sim.result import EventKind, SimResult
from heddle.trace._gaps import Covered, Span
from heddle.trace._perfetto import write_tracks
from heddle.trace._slices import Detail, Slice, Track
from heddle.trace._unit_tracks import barrier_tracks, unit_tracks
from heddle.trace._warp_tracks import warp_tracks

DEFAULT_CYCLES = 20_000


def write_trace(
    result: SimResult,
    program: WarpProgram,
    machine: Machine,
    path: str | Path,
    *,
    first_cycle: int = 0,
    cycles: int = DEFAULT_CYCLES,
    sms: int | None = None,
) -> int:
    """Write `result.log` as a Perfetto trace and return its number of slices; one cycle is one nanosecond.

    Shown are `cycles` cycles from `first_cycle` on, of the first `sms` SMs (one cluster by default); the file says what
    was left out. The file appears under its name only when it is complete. Raises UserError if the result has no log or
    the file cannot be written.
    """
    if result.log is None:
        raise UserError("the result has no event log to draw", hint='simulate with log="sm0" or log="all"')
    shown = min(sms or program.cluster_size, result.simulated_sms)
    events = _window(result.log, first_cycle, first_cycle + cycles, shown)
    tracks = [*_fast_forward(result)]
    covered = Covered(first_cycle, _skips(result))
    for sm in range(shown):
        tracks += _sm_tracks(events[events["sm"] == sm], program, machine, sm, covered)
    about = _about(result, program, machine, shown, first_cycle, cycles)
    with written_whole(Path(path)) as file:
        write_tracks(file, tracks, about)
    return sum(len(track.slices) for track in tracks)


def _window(log: NDArray[Any], first: int, last: int, sms: int) -> NDArray[Any]:
    inside: NDArray[Any] = log[(log["begin"] >= first) & (log["begin"] < last) & (log["sm"] < sms)]
    return inside


def _sm_tracks(events: NDArray[Any], program: WarpProgram, machine: Machine, sm: int, covered: Covered) -> list[Track]:
    if not events.size:
        return []
    name = f"SM {sm}"
    of_warps = events[(events["kind"] == EventKind.ISSUE) | (events["kind"] == EventKind.WAIT)]
    return [
        *warp_tracks(of_warps, program, name, machine.subpartitions, covered),
        *unit_tracks(events, program, machine, name),
        *barrier_tracks(events, program, name),
    ]


def _skips(result: SimResult) -> list[Span]:
    """Return the spans of time for which there is no log: they repeat the span before them."""
    return [(end, end + (end - begin) * times) for begin, end, times in result.repeats]


def _fast_forward(result: SimResult) -> list[Track]:
    if not result.repeats:
        return []
    track = Track(("fast-forward",), description="spans of the log that the simulation repeated without logging them")
    track.slices = [
        Slice(begin, end, f"repeats {times} times", {"times": times, "cycles": (end - begin) * times})
        for begin, end, times in result.repeats
        if end > begin
    ]
    return [track]


def _about(
    result: SimResult, program: WarpProgram, machine: Machine, sms: int, first: int, cycles: int
) -> dict[str, Detail]:
    last = min(result.cycles, first + cycles)
    return {
        "kernel": program.name,
        "gpu": machine.name,
        "time unit": "1 ns is 1 SM cycle",
        "cycles shown": f"{first} to {last} of {result.cycles}",
        "SMs shown": f"{sms} of {machine.sms} ({result.simulated_sms} simulated, mode {result.mode})",
        "fast-forwarded cycles": result.fast_forwarded_cycles,
        "heddle version": heddle_version(),
        "machine hash": machine_hash(machine),
        "program hash": program_hash(program),
    }
