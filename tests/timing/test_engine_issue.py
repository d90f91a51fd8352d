"""Issue rules: stall counts, dependence counters, pipes, ports, by hand-computed cycles."""

import pytest

from engine_builder import EXIT, R, h100, issues, loop, op, program, run, waited

FFMA = {"dst": R(0), "src": (R(2), R(4), R(7))}


def test_stall_count_is_the_distance_to_the_next_issue() -> None:
    assert issues(program(op("FFMA", stall=4), op("FFMA", stall=2), EXIT)) == [0, 4, 6]


def test_a_counter_holds_the_reader_until_the_result_is_written() -> None:
    latency = h100().ops["MUFU"].latency_cycles
    p = program(op("MUFU", write=0), op("FADD", wait=[0]), EXIT)
    assert issues(p)[1] == latency


def test_a_reader_without_its_wait_issues_too_early() -> None:
    p = program(op("MUFU", write=0), op("FADD"), EXIT)
    assert issues(p)[1] == 1


def test_waiting_for_a_counter_is_a_short_scoreboard_stall_but_for_the_stall_count() -> None:
    latency = h100().ops["MUFU"].latency_cycles
    result = run(program(op("MUFU", stall=3, write=0), op("FADD", wait=[0]), EXIT))
    assert waited(result, 1) == {"SELECTED": 1, "WAIT": 2, "SHORT_SCOREBOARD": latency - 3}


def test_the_lowest_unfinished_counter_gives_the_reason() -> None:
    hmma = op("HMMA", write=1, shape=(16, 8, 16), dtype="fp16", form="fp32")
    result = run(program(hmma, op("MUFU", write=0), op("FADD", wait=[0, 1]), EXIT))
    mufu, matrix = h100().ops["MUFU"].latency_cycles, h100().ops["HMMA"].latency_cycles
    expected = {"SELECTED": 1, "SHORT_SCOREBOARD": mufu - 1}
    if matrix > mufu + 1:
        expected["MATRIX_SCOREBOARD"] = matrix - mufu - 1
    assert waited(result, 2) == expected


def test_a_pipe_takes_one_instruction_in_its_initiation_interval() -> None:
    interval = int(h100().ops["MUFU"].initiation_cycles)
    assert issues(program(op("MUFU"), op("MUFU"), op("MUFU"), EXIT))[:3] == [0, interval, 2 * interval]


def test_a_busy_pipe_is_a_math_pipe_throttle() -> None:
    interval = int(h100().ops["MUFU"].initiation_cycles)
    result = run(program(op("MUFU"), op("MUFU"), EXIT))
    assert waited(result, 1) == {"SELECTED": 1, "MATH_PIPE_THROTTLE": interval - 1}


@pytest.mark.parametrize(("registers", "extra"), [((2, 3, 5), 1), ((2, 4, 6), 2), ((2, 3, 255), 0), ((2, 2, 2), 0)])
def test_own_bank_conflicts_delay_the_next_instruction(registers: tuple[int, ...], extra: int) -> None:
    p = program(op("FFMA", dst=R(0), src=tuple(R(r) for r in registers)), op("NOP"), EXIT)
    assert issues(p)[1] == 1 + extra


@pytest.mark.parametrize(("added", "reads"), [((), 5), ((R(12, 4),), 5), ((R(255),), 3), ((R(4, 4),), 3)])
def test_mma_sync_reads_its_accumulators(added: tuple[R, ...], reads: int) -> None:
    """A: four registers, B: two, accumulators: four, in two banks; none that A does not name, or none at all."""
    sources = (R(4, 4), R(8, 2), *added)
    hmma = op("HMMA", dst=R(0, 4), src=sources, shape=(16, 8, 16), dtype="fp16")
    assert issues(program(hmma, op("NOP"), EXIT))[1] == reads


def test_the_reuse_cache_saves_a_read() -> None:
    first = op("FFMA", dst=R(0), src=(R(2, reuse=True), R(3), R(255)))
    second = op("FFMA", dst=R(0), src=(R(2), R(4), R(255)))
    assert issues(program(first, second, op("NOP"), EXIT))[2] == 2


def test_without_the_reuse_bit_the_same_registers_conflict() -> None:
    first = op("FFMA", dst=R(0), src=(R(2), R(3), R(255)))
    second = op("FFMA", dst=R(0), src=(R(2), R(4), R(255)))
    assert issues(program(first, second, op("NOP"), EXIT))[2] == 3


def test_the_reuse_cache_is_lost_when_another_warp_issues_in_between() -> None:
    first = op("FFMA", dst=R(0), src=(R(2, reuse=True), R(3), R(255)), stall=2)
    second = op("FFMA", dst=R(0), src=(R(2), R(4), R(255)))
    p = program(first, second, op("NOP"), EXIT, warps=8)
    assert issues(p, warp=4)[2] - issues(p, warp=4)[1] == 2


def test_reads_of_another_warp_hold_up_the_same_bank() -> None:
    p = program(op("FFMA", dst=R(0), src=(R(2), R(4), R(6))), EXIT, warps=8)
    result = run(p)
    # a subpartition: 0 the first issues, 1 the bank is taken for two more cycles, 2 the second issues: one read waits
    assert waited(result, 0) == {"SELECTED": 8, "NOT_SELECTED": 4, "DISPATCH_STALL": 4}


def test_a_taken_branch_costs_its_latency() -> None:
    latency = h100().ops["LOOP"].latency_cycles
    assert issues(program(op("NOP"), loop(0, 2), EXIT))[2] == 1 + latency


def test_the_counts_of_every_warp_sum_to_its_resident_cycles() -> None:
    p = program(op("MUFU", write=0), op("FFMA", wait=[0], **FFMA), loop(0, 7), EXIT, warps=12)
    result = run(p)
    last = [max(issues(p, warp=warp)) + 1 for warp in range(12)]
    assert [int(total) for total in result.stalls[:12].sum(axis=1)] == last


@pytest.mark.parametrize(("scheduler", "first"), [("gty", 8), ("gto", 0), ("lrr", 0)])
def test_policies_pick_the_first_warp(scheduler: str, first: int) -> None:
    p = program(op("NOP"), EXIT, warps=12)
    assert issues(p, warp=first, scheduler=scheduler)[0] == 0
