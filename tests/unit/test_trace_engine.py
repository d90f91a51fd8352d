"""Does the trace of a simulated GEMM show every role, unit and barrier, and the waits that the result accounts for?"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest

from heddle import pipeline
from heddle.ir.warp import WarpProgram
from heddle.machine import machine
from heddle.metrics.stalls import stall_name
from heddle.sim.result import SimResult, Stall
from heddle.trace import Track, read_trace, write_trace


@dataclass(frozen=True)
class Traced:
    """A GEMM, its simulation, and its trace read back."""

    program: WarpProgram
    result: SimResult
    tracks: dict[tuple[str, ...], Track]


@pytest.fixture(scope="module", params=["a100", "h100", "b200"])
def gemm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Trace a GEMM on each GPU."""
    gpu, file = machine(request.param), tmp_path_factory.mktemp("trace") / "gemm.pftrace"
    params = {"m": 256, "n": 512, "k": 512, "dtype": "fp16"}
    program = pipeline.compile_kernel("gemm", gpu, params)
    result = pipeline.simulate_program(program, gpu, clock_mhz=1400.0, log="sm0")
    write_trace(result, program, gpu, file)
    return Traced(program, result, {track.path: track for track in read_trace(file)[0]})


def warps_of(gemm: Traced) -> dict[int, Track]:
    """Return the tracks of the warps of SM 0, by context."""
    found = {}
    size = max(role.first_warp + role.warps for role in gemm.program.roles)
    for path, track in gemm.tracks.items():
        if path[0] == "SM 0" and (match := re.fullmatch(r"warp (\d+)", path[-1])):
            slot = re.search(r"CTA slot (\d+)", path[1])
            found[int(slot[1] if slot else 0) * size + int(match[1])] = track
    return found


def test_every_role_has_a_track_for_each_of_its_warps(gemm: Traced) -> None:
    for role in gemm.program.roles:
        shown = [path for path in gemm.tracks if path[0] == "SM 0" and path[1].split(" (")[0] == role.name]
        assert {path[-1] for path in shown} >= {f"warp {role.first_warp + i}" for i in range(role.warps)}


def test_every_mbarrier_has_a_track(gemm: Traced) -> None:
    shown = {path[-1] for path in gemm.tracks if path[:2] == ("SM 0", "barriers")}
    assert shown >= {f"{barrier.name}[0]" for barrier in gemm.program.barriers}


def test_the_matrix_unit_and_the_copies_have_tracks(gemm: Traced) -> None:
    units = {path[-1] for path in gemm.tracks if path[:2] == ("SM 0", "units")}
    sm80 = gemm.program.architecture == "sm_80"
    assert ("tensor (subpartition 3)" if sm80 else "tensor") in units
    assert any(unit.startswith("global memory" if sm80 else "TMA loads") for unit in units)


def test_every_operation_of_a_warp_is_labelled_by_its_source_line(gemm: Traced) -> None:
    for track in warps_of(gemm).values():
        outer = [piece for piece in track.slices if not piece.name.startswith("wait") and "pc" not in piece.details]
        assert [piece.name for piece in outer if not re.fullmatch(r"\w+ \w+\.py:\d+", piece.name)] == []


def test_the_waits_of_a_warp_are_those_of_the_accounts(gemm: Traced) -> None:
    for context, track in warps_of(gemm).items():
        shown: Counter[str] = Counter()
        for piece in track.slices:
            if piece.name.startswith("wait: "):
                shown[together(piece.name.removeprefix("wait: "))] += piece.end - piece.begin
        counted: Counter[str] = Counter()
        for stall in Stall:
            if stall != Stall.SELECTED:
                counted[together(stall_name(stall))] += int(gemm.result.stalls[context][stall])
        assert shown.total() == counted.total()
        # many short waits before one issue are logged as one: the last reason stands for the rest
        assert max((shown - counted).values(), default=0) <= 0.01 * counted.total()


def together(name: str) -> str:
    """Return the name of a wait; of a bank conflict and of another warp's turn a log does not tell which it was."""
    return "wait or not_selected" if name in ("wait", "not_selected") else name
