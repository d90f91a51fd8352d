"""SET_FIBER_NUM cycle by cycle: meeting, spawning, masking, draining; and the cuda-native mode that uses it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine_builder import EXIT, R, loop, op, program, role
from fiber_builder import SETUP, at, bind, bit, fiber_machine, fiber_program, issued, nops, run_fiber, states
from heddle.errors import UserError
from heddle.ir.warp import Count, Instruction, WarpProgram
from heddle.ir.warp_fiber import FiberNote
from heddle.machine import machine
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.sim.result import EventKind, Stall


def meet(fibers: int, all_scope: bool = False) -> Instruction:
    """Return a SETFIBER."""
    return op("SETFIBER", fibers=fibers, all_scope=all_scope)


def test_up_new_wefts_start_together_with_the_others() -> None:
    """T = 0: the SETFIBER issues in cycle 1, everybody goes on at T + S."""
    chip = run_fiber(fiber_program({0: [op("NOP")], 1: [op("NOP")], 2: [op("NOP")]}))
    assert [issued(chip, weft)[0] for weft in range(3)] == [0, 0, 0]
    assert states(chip, 0) == {"SELECTED": 3, "FIBER_SYNC": 1 + SETUP - 2}
    assert states(chip, 1) == {"SELECTED": 2, "NO_INSTRUCTION": SETUP - 1}


def test_the_last_to_arrive_decides_when_all_go_on() -> None:
    chip = run_fiber(fiber_program({0: [meet(64), op("NOP")], 1: [*nops(7), meet(64), op("NOP")]}))
    assert issued(chip, 0) == [8, 7 + SETUP, 8 + SETUP]
    assert issued(chip, 1)[7:] == [8, 7 + SETUP, 8 + SETUP]


def test_wefts_of_one_subpartition_issue_it_in_one_cycle() -> None:
    code = {weft: [meet(32 * 9), op("NOP")] for weft in (0, 4, 8)} | {w: [meet(32 * 9)] for w in (1, 2, 3, 5, 6, 7)}
    chip = run_fiber(fiber_program(code))
    assert [issued(chip, weft)[0] for weft in (0, 4, 8)] == [1, 1, 1]


def test_down_the_highest_wefts_are_masked() -> None:
    chip = run_fiber(fiber_program({w: [meet(64), *nops(2)] for w in range(4)}))
    assert [len(issued(chip, weft)) for weft in range(4)] == [4, 4, 1, 1]
    assert states(chip, 3) == {"SELECTED": 1, "NO_INSTRUCTION": SETUP - 1, "FIBER_SYNC": 1}


def test_a_count_is_rounded_up_to_wefts() -> None:
    chip = run_fiber(fiber_program({w: [meet(33), *nops(2)] for w in range(3)}))
    assert [len(issued(chip, weft)) for weft in range(3)] == [4, 4, 1]


def test_a_masked_weft_comes_back_at_its_entry() -> None:
    """Weft 1 is masked at its first SETFIBER and starts again: its code runs twice up to there."""
    down_and_up = [meet(32), meet(64), meet(32)]
    chip = run_fiber(fiber_program({0: down_and_up, 1: [*nops(3), meet(32)]}))
    assert len(issued(chip, 1)) == 8


def test_a_weft_that_ended_does_not_come_back() -> None:
    chip = run_fiber(fiber_program({0: [*nops(3), meet(64)], 1: nops(1)}))
    assert len(issued(chip, 1)) == 2


def test_wefts_that_have_ended_are_not_waited_for() -> None:
    chip = run_fiber(fiber_program({0: [meet(64)], 1: nops(20)}))
    assert issued(chip, 0)[0] == 21  # the EXIT of weft 1 issues in cycle 20: T = 20


def test_loops_and_counters_of_a_new_weft_start_anew() -> None:
    body = [op("NOP"), loop(0, 3)]
    p = fiber_program({0: [meet(32), meet(64)], 1: [*body, meet(32)]})
    entry = p.roles[1].entry
    target = dataclasses.replace(p.instructions[entry + 1], target=entry)
    rows = (*p.instructions[: entry + 1], target, *p.instructions[entry + 2 :])
    chip = run_fiber(dataclasses.replace(p, instructions=rows))
    assert len(issued(chip, 1)) == 2 * 6 + 1 + 1  # three passes twice, one SETFIBER, one EXIT at the next row


def test_the_pool_at_rest_costs_all_nothing() -> None:
    plain = run_fiber(fiber_program({0: [meet(32), op("NOP")]}))
    everything = run_fiber(fiber_program({0: [meet(32, True), op("NOP")]}))
    assert issued(plain, 0) == issued(everything, 0)


def test_all_drains_reads_and_bits_of_the_pool() -> None:
    """A read of the pool is over at 2 and seen at 3; a bit set at 0 is seen everywhere at 2."""
    read = op("FADD", dst=at(1), src=(at(16),))
    assert issued(run_fiber(fiber_program({0: [read, meet(32, True)]})), 0)[1] == 4
    assert issued(run_fiber(fiber_program({0: [bit("full", at(16), False), meet(32, True)]})), 0)[1] == 3


def test_all_waits_for_operations_of_masked_wefts() -> None:
    """Weft 4's load is in flight when it is masked; the next SETFIBER with ALL waits for it."""
    load = op("LDS", dst=at(16), src=(at(1),), bytes=4096)
    chip = run_fiber(
        fiber_program({0: [*nops(2), meet(32), meet(32, True)], 4: [load, meet(32)]}),
        fiber_machine(set_fiber_num_cycles=2),
    )
    done = 4096 // 128 - 1 + 4
    assert issued(chip, 0)[3] == done + 1 + 1


def test_wefts_that_disagree_about_the_count_are_an_error() -> None:
    with pytest.raises(UserError, match=r"wefts meet at SETFIBERs that differ.*weft 0 at pc \d+, weft 1 at pc"):
        run_fiber(fiber_program({0: [meet(32)], 1: [meet(64)]}))


def test_a_weft_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)
    code = {0: [meet(64)], 1: [bit("empty", at(16), True), op("FADD", dst=at(1), src=(at(16),)), meet(64)]}
    with pytest.raises(UserError) as error:
        run_fiber(fiber_program(code))
    assert "weft 0 (weft0) of SM 0 at pc 1 (SETFIBER, kernel.py:101) waits for the other wefts" in str(error.value)
    assert "waits for a datum in R16 of subpartition 1, which is not written by any weft" in str(error.value)


def test_a_new_weft_works_on_the_item_of_the_others() -> None:
    """Weft 0 goes to its second item, then starts weft 1."""
    rows = [op("NEXT", target=1), meet(64), EXIT, op("NOP"), EXIT]
    p = program(*rows, roles=(role(0, 1), role(3, 1, first=1, name="late")), items=((0,), (0,)), schedule="static",
                mode="fiber", fiber=FiberNote(registers=16))  # fmt: skip
    log = run_fiber(p).log.array()
    assert log is not None
    late = log[(log["warp"] == 1) & (log["kind"] == EventKind.ISSUE)]
    assert list(late["item"]) == [1, 1]


def test_the_next_fiber_thread_waits_for_what_the_last_one_has_in_flight() -> None:
    """A load of the pool outlives the EXIT; the slot is free when it is over, with all bits 0."""
    load = op("LDS", dst=at(16), src=(at(1),), bytes=4096)
    p = fiber_program({0: [bind(hold=True), load]}, items=((0,), (0,)), registers=512)
    chip = run_fiber(p)
    log = chip.log.array()
    assert log is not None
    firsts = [int(r["begin"]) for r in log if r["kind"] == EventKind.ISSUE and r["pc"] == 0]
    loads = [int(r["begin"]) for r in log if r["kind"] == EventKind.ISSUE and r["pc"] == 2]
    rest = loads[0] + 4096 // 128 - 1 + 4 + chip.machine.busy_bit_broadcast_cycles
    assert firsts[1] == rest + chip.machine.cta_launch_cycles + 1
    assert len(chip.warnings) == 2


def test_fiber_threads_of_one_sm_have_bits_of_their_own() -> None:
    code = {
        0: [bit("empty", at(16), True), *nops(40), bit("empty", at(16), False), op("FADD", dst=at(1), src=(at(16),))]
    }
    alone = simulate_reference(fiber_program(code, registers=64), fiber_machine(), mode="sm", l2_state="cold")
    two = fiber_program(code, registers=64, items=((0,), (0,)), grid=2)
    together = simulate_reference(two, fiber_machine(), mode="sm", l2_state="cold")
    assert together.stalls[:, Stall.POOL_EMPTY].sum() == 2 * alone.stalls[:, Stall.POOL_EMPTY].sum()


# --- cuda-native


def kernel(warps: int) -> WarpProgram:
    """A SIMT program whose warps contend for pipes, ports, the load/store unit and a barrier."""
    return program(
        op("MUFU", write=0), op("FFMA", dst=R(0), src=(R(2), R(4), R(6))),
        op("LDS", dst=R(8), src=(R(1),), bytes=512, write=1), op("FADD", wait=[0, 1]),
        op("BAR.SYNC", warps=warps), loop(0, 5), EXIT, warps=warps,
    )  # fmt: skip


def cuda_native(p: WarpProgram) -> WarpProgram:
    """Put one SETFIBER of all warps in front of the role."""
    rows = [op("SETFIBER", fibers=32 * p.warps_per_cta), *p.instructions]
    moved = [dataclasses.replace(i, target=i.target + 1) if i.target is not None else i for i in rows]
    return dataclasses.replace(p, instructions=tuple(moved), mode="cuda-native")


@pytest.mark.parametrize("cycles", [4, 16, 64])
@pytest.mark.parametrize("warps", [1, 4, 12, 64])
def test_cuda_native_takes_exactly_the_cycles_of_set_fiber_num_more(warps: int, cycles: int) -> None:
    m = dataclasses.replace(machine("h100+fiber"), sms=1, set_fiber_num_cycles=cycles)
    baseline = simulate_reference(kernel(warps), m, mode="sm", l2_state="cold")
    native = simulate_reference(cuda_native(kernel(warps)), m, mode="sm", l2_state="cold")
    assert native.cycles == baseline.cycles + cycles
    added = native.stalls.sum(axis=0) - baseline.stalls.sum(axis=0)
    assert {Stall(k).name: int(v) for k, v in enumerate(added) if v} == {
        "SELECTED": warps,
        "FIBER_SYNC": warps * (cycles - 1),
    }


def test_cuda_native_changes_nothing_else() -> None:
    m = dataclasses.replace(machine("h100+fiber"), sms=1)
    baseline = simulate_reference(kernel(8), m, mode="sm", l2_state="cold")
    native = simulate_reference(cuda_native(kernel(8)), m, mode="sm", l2_state="cold")
    reasons = [reason for reason in Stall if reason is not Stall.FIBER_SYNC]
    assert np.array_equal(native.stalls_pc[1:, reasons], baseline.stalls_pc[:, reasons])
    assert native.pipe_busy == baseline.pipe_busy


@pytest.mark.parametrize("engine", ["reference", "compiled", "python"])
def test_simulate_runs_fiber_on_every_engine(engine: str) -> None:
    p = fiber_program({0: [op("NOP")]})
    assert simulate(p, fiber_machine(), engine=engine, mode="sm", l2_state="cold").cycles == SETUP + 2


def test_a_loop_in_weft_0_may_meet_again_and_again() -> None:
    """Up and down twice: every phase starts weft 1 anew."""
    rows = [meet(64), meet(32), op("LOOP", target=0, count=Count(2)), EXIT, op("NOP"), meet(32)]
    p = program(*rows, EXIT, roles=(role(0, 1), role(4, 1, first=1, name="late")), mode="fiber",
                fiber=FiberNote(registers=16))  # fmt: skip
    assert len(issued(run_fiber(p), 1)) == 4
