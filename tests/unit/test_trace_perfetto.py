"""Does a trace file hold what the log holds: all tracks, nested slices, right totals, and what was left out?"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import interp_logs as tiny
import numpy as np
import pytest

from heddle.errors import UserError
from heddle.machine import machine
from heddle.sim.result import EVENT, EventKind, Stall
from heddle.trace import Slice, Track, read_trace, write_trace
from heddle.trace._slices import in_lanes


def traced(tmp_path: Path, **options: int) -> tuple[dict[tuple[str, ...], Track], dict[str, str | int]]:
    """Write the tiny product's trace and read it back."""
    file = tmp_path / "tiny.pftrace"
    count = write_trace(tiny.result(tiny.run()), tiny.program(), machine("h100"), file, **options)
    tracks, about = read_trace(file)
    assert sum(len(track.slices) for track in tracks) == count
    return {track.path: track for track in tracks}, about


def test_there_is_a_track_a_warp_unit_and_barrier(tmp_path: Path) -> None:
    tracks, _ = traced(tmp_path)
    paths = set(tracks)
    assert {("SM 0", "consumer", f"warp {w}") for w in range(4)} <= paths
    assert ("SM 0", "producer", "warp 4") in paths
    assert ("SM 0", "units", "tensor") in paths
    assert any(path[:2] == ("SM 0", "units") and path[2].startswith("TMA loads") for path in paths)
    assert {("SM 0", "barriers", f"{n}[{e}]") for n in ("full", "empty") for e in (0, 1)} <= paths


def test_slices_of_a_track_nest(tmp_path: Path) -> None:
    tracks, _ = traced(tmp_path)
    for track in tracks.values():
        open_ends: list[int] = []
        for piece in track.slices:
            while open_ends and open_ends[-1] <= piece.begin:
                open_ends.pop()
            assert not open_ends or piece.end <= open_ends[-1], (track.path, piece)
            open_ends.append(piece.end)


def test_operations_tile_a_warp_without_gaps(tmp_path: Path) -> None:
    tracks, _ = traced(tmp_path)
    pieces = tracks["SM 0", "consumer", "warp 0"].slices
    outer = [p for p in pieces if "gemm.py" in p.name]
    assert outer[0].name == "Wait gemm.py:16"
    assert all(a.end == b.begin for a, b in pairwise(outer))


def test_every_issue_is_drawn_once(tmp_path: Path) -> None:
    tracks, _ = traced(tmp_path)
    drawn = sum(1 for path, t in tracks.items() if path[-1].startswith("warp") for p in t.slices if "pc" in p.details)
    assert drawn == np.count_nonzero(tiny.run()["kind"] == EventKind.ISSUE)


def test_the_tensor_track_holds_the_matrix_units_busy_cycles(tmp_path: Path) -> None:
    tracks, _ = traced(tmp_path)
    slices = tracks["SM 0", "units", "tensor"].slices
    assert len(slices) == tiny.STEPS
    assert sum(s.end - s.begin for s in slices) == 32 * tiny.STEPS
    assert slices[0].name == "HGMMA 64x16x16 Mma gemm.py:17"


def waits_before_the_first_product(tmp_path: Path, *logged: tuple[int, int, Stall], skip: int = 0) -> list[str]:
    """Return the waits drawn before the first wgmma wait of warp 0 issues; `logged`: begin, end, reason before it."""
    log = tiny.run()
    first = log[(log["kind"] == EventKind.ISSUE) & (log["pc"] == tiny.MMA_WAIT) & (log["warp"] == 0)][0]
    waits = np.zeros(len(logged), EVENT)
    for wait, (begin, end, reason) in zip(waits, logged, strict=True):
        wait["kind"], wait["pc"], wait["detail"] = EventKind.WAIT, tiny.MMA_WAIT, reason
        wait["begin"], wait["end"] = first["begin"] - begin, first["begin"] - end
    result = tiny.result(np.concatenate([log, waits]))
    if skip:
        end = int(first["begin"])
        result.repeats = [(end - 2 * skip, end - skip, 1)]
    write_trace(result, tiny.program(), machine("h100"), tmp_path / "t.pftrace")
    (track,) = (t for t in read_trace(tmp_path / "t.pftrace")[0] if t.path[-1] == "warp 0")
    issued = next(p.begin for p in track.slices if p.details.get("pc") == tiny.COMMIT)
    return [p.name for p in track.slices if issued < p.begin < first["begin"] and "gemm.py" not in p.name]


def test_logged_waits_are_drawn_with_their_reason(tmp_path: Path) -> None:
    drawn = waits_before_the_first_product(tmp_path, (5, 0, Stall.GMMA))
    assert drawn[-1] == "wait: gmma"


def test_what_is_not_logged_is_the_stall_count_and_then_the_turn_of_others(tmp_path: Path) -> None:
    drawn = waits_before_the_first_product(tmp_path, (5, 2, Stall.GMMA))
    assert drawn == ["wait: wait", "wait: gmma", "wait: not_selected"]


def test_time_that_was_skipped_is_no_wait(tmp_path: Path) -> None:
    drawn = waits_before_the_first_product(tmp_path, (8, 0, Stall.GMMA), skip=5)
    assert drawn == ["wait: wait", "wait: gmma", "fast-forward"]


def test_the_file_says_what_it_leaves_out(tmp_path: Path) -> None:
    tracks, about = traced(tmp_path, cycles=100)
    assert about["cycles shown"] == f"0 to 100 of {tiny.result(tiny.run()).cycles}"
    assert about["SMs shown"] == "1 of 132 (1 simulated, mode chip)"
    assert all(p.begin < 100 for path, t in tracks.items() if path[-1].startswith("warp") for p in t.slices)


def test_fast_forwarded_spans_are_noted(tmp_path: Path) -> None:
    result = tiny.result(tiny.run())
    result.repeats = [(400, 500, 7)]
    write_trace(result, tiny.program(), machine("h100"), tmp_path / "t.pftrace")
    tracks, _ = read_trace(tmp_path / "t.pftrace")
    (track,) = [t for t in tracks if t.path == ("fast-forward",)]
    assert track.slices == [Slice(400, 500, "repeats 7 times", {"times": 7, "cycles": 700})]


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_trace(tiny.result(tiny.run()), tiny.program(), machine("h100"), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("heddle.trace.write.write_tracks", broken)
    with pytest.raises(UserError, match="disk full"):
        write_trace(tiny.result(tiny.run()), tiny.program(), machine("h100"), tmp_path / "t.pftrace")
    assert list(tmp_path.iterdir()) == []


def test_a_result_without_a_log_is_refused(tmp_path: Path) -> None:
    result = tiny.result(tiny.run())
    result.log = None
    with pytest.raises(UserError, match="no event log to draw"):
        write_trace(result, tiny.program(), machine("h100"), tmp_path / "t.pftrace")


def test_overlapping_slices_go_to_separate_lanes() -> None:
    lanes = in_lanes(("x", "TMA"), [Slice(0, 10, "a"), Slice(5, 15, "b"), Slice(10, 20, "c")])
    assert [[s.name for s in lane.slices] for lane in lanes] == [["a", "c"], ["b"]]
    assert [lane.path for lane in lanes] == [("x", "TMA 0"), ("x", "TMA 1")]
