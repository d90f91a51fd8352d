"""The event log: waits, order, counters, levels."""

import numpy as np

from engine_builder import EXIT, R, loop, op, program, run
from heddle.sim import EventKind, SimResult, Stall

P = program(
    op("FFMA", dst=R(0), src=(R(2), R(4), R(6)), stall=2), op("MUFU", write=0), op("FADD", wait=[0]),
    op("BAR.SYNC", warps=8), loop(0, 3), EXIT, warps=8,
)  # fmt: skip


def waits_by_reason(result: SimResult) -> dict[str, int]:
    """Sum the logged spans of waiting."""
    assert result.log is not None
    spans = result.log[result.log["kind"] == EventKind.WAIT]
    return {
        reason.name: int((spans["end"] - spans["begin"])[spans["detail"] == reason].sum())
        for reason in Stall
        if (spans["detail"] == reason).any()
    }


def test_logged_waits_add_up_to_the_account() -> None:
    result = run(P, log="all")
    quiet = (Stall.SELECTED, Stall.NOT_SELECTED, Stall.WAIT)
    expected = {s.name: int(result.stalls[:, s].sum()) for s in Stall if s not in quiet and result.stalls[:, s].sum()}
    assert waits_by_reason(result) == expected


def test_waits_of_a_warp_do_not_overlap() -> None:
    log = run(P, log="all").log
    assert log is not None
    spans = log[(log["kind"] == EventKind.WAIT) & (log["warp"] == 4)]
    assert (spans["begin"][1:] >= spans["end"][:-1]).all()


def test_issues_carry_the_loop_counters_before_the_instruction() -> None:
    log = run(P, log="issue").log
    assert log is not None
    loops = log[(log["pc"] == 4) & (log["warp"] == 0)]
    assert loops["counters"][:, 0].tolist() == [0, 1, 2]


def test_the_log_grows_as_far_as_it_must() -> None:
    result = run(program(op("NOP"), loop(0, 9000), EXIT, warps=8), log="issue")
    assert result.log is not None
    assert len(result.log) == result.warp_instructions == 8 * 18001


def test_logging_changes_nothing() -> None:
    assert np.array_equal(run(P, log="all").stalls_pc, run(P).stalls_pc)
