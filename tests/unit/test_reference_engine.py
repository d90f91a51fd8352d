"""Does the reference engine do what the page says, on programs small enough to count by hand?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from heddle.errors import UnsupportedError, UserError
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import parse_program
from heddle.machine import Machine, OpTiming, machine
from heddle.sim.reference import simulate_reference
from heddle.sim.reference.control import Branch
from heddle.sim.reference.tensor_memory import TensorMemoryUnit
from heddle.sim.reference.unit import UnitModel
from heddle.sim.result import SimResult, Stall

HEAD = """\
warp_program tiny architecture=sm_90
work static grid=1 attributes=[base]
item 0
role all first_warp=0 warps={warps} entry=start registers_per_thread=64
barrier done count=1 arrivals=1
tensor a shape=[64, 64] dtype=fp16
stream a tensor=a direction=load blocks=4 block_bytes=512 base=base
code
start:
"""


def program(code: str, warps: int = 1) -> WarpProgram:
    """Return a program of one role from its code."""
    return parse_program(HEAD.format(warps=warps) + code + "\n  [B------:R-:W-:S01] EXIT\n")


def simple_machine(**changes: object) -> Machine:
    """Return an H100 of one SM on which every pipe takes one instruction a cycle and answers in four."""
    base = machine("h100")
    ops = {name: OpTiming(pipe=op.pipe, initiation_cycles=1.0, latency_cycles=4) for name, op in base.ops.items()}
    return dataclasses.replace(base, sms=1, ops=ops, l2_partitions=1, **changes)


def run(code: str, warps: int = 1, **changes: object) -> SimResult:
    """Run code on one SM."""
    return simulate_reference(program(code, warps), simple_machine(**changes), mode="sm", l2_state="cold")


def states(result: SimResult, context: int = 0) -> dict[str, int]:
    """Return the cycles of a warp by state."""
    return {Stall(k).name: int(cycles) for k, cycles in enumerate(result.stalls[context]) if cycles}


def test_stall_count_spaces_two_instructions() -> None:
    result = run("  [B------:R-:W-:S05] NOP")
    assert states(result) == {"SELECTED": 2, "WAIT": 4}
    assert result.cycles == 6


def test_counter_is_released_at_the_latency() -> None:
    result = run("  [B------:R-:W0:S01] MUFU R1 = R2\n  [B0-----:R-:W-:S01] NOP")
    assert states(result) == {"SELECTED": 3, "SHORT_SCOREBOARD": 3}


def test_operands_in_one_bank_cost_a_cycle_each() -> None:
    result = run("  [B------:R-:W-:S01] FFMA R1 = R2, R4, R6")
    assert states(result) == {"SELECTED": 2, "WAIT": 2}


def test_reuse_bit_saves_the_read() -> None:
    code = "  [B------:R-:W-:S01] FFMA R1 = R2.reuse, R3, RZ\n  [B------:R-:W-:S01] FFMA R1 = R2, R4, RZ"
    assert states(run(code)) == {"SELECTED": 3}
    assert states(run(code, register_reuse_cache=False)) == {"SELECTED": 3, "WAIT": 1}


def test_two_warps_of_a_subpartition_take_turns_to_issue() -> None:
    result = run("  [B------:R-:W-:S01] NOP", warps=5)  # warps 0 and 4 share subpartition 0
    assert states(result, 4) == {"SELECTED": 2}
    assert states(result, 0) == {"SELECTED": 2, "NOT_SELECTED": 2}


def test_named_barrier_opens_for_all_at_once() -> None:
    result = run("  [B------:R-:W-:S01] BAR.SYNC warps=2", warps=2, named_barrier_cycles=10)
    per_warp = machine("h100").named_barrier_cycles_per_warp
    wait = 10 + 2 * per_warp - 1
    assert states(result, 0) == states(result, 1) == {"SELECTED": 2, "BARRIER": wait}


def test_load_waits_for_the_memory() -> None:
    near, extra = 40, 0.0
    result = run(
        "  [B------:R-:W0:S01] LDG R4 = R2:2 bytes=128 stream=a\n  [B0-----:R-:W-:S01] NOP",
        l2_near_latency_cycles=near,
        dram_extra_latency_ns=extra,
        dram_gbytes_per_s=1e9,
        l2_bytes_per_cycle_per_sm=1e9,
        l2_port_bytes_per_cycle=1e9,
    )
    assert states(result) == {"SELECTED": 3, "LONG_SCOREBOARD": near - 1}
    assert result.dram_read_bytes == 512  # the piece is the whole block


def test_states_of_a_warp_add_up_to_its_residence() -> None:
    result = run("  [B------:R-:W-:S05] NOP\n  [B------:R-:W0:S01] LDS R4 = R2 bytes=128", warps=6)
    residence = result.stalls.sum(axis=1)
    assert (residence <= result.cycles).all()
    assert np.array_equal(result.stalls.sum(axis=0), result.stalls_pc.sum(axis=0))


def test_deadlock_names_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)
    with pytest.raises(UserError, match=r"deadlock: .* warp 0 of SM 0 at pc 0 \(SYNCS.TRYWAIT\)"):
        run("  [B------:R-:W-:S01] SYNCS.TRYWAIT barrier=done")


def test_program_that_does_not_fit_is_refused() -> None:
    big = dataclasses.replace(program(""), shared_memory_bytes=1 << 20)
    with pytest.raises(UserError, match="no CTA of tiny fits an SM of h100"):
        simulate_reference(big, simple_machine(), l2_state="cold")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="unknown L2 state 'hot'"):
        simulate_reference(program(""), simple_machine(), l2_state="hot")
    with pytest.raises(UserError, match="unknown scheduler 'best'"):
        simulate_reference(program(""), simple_machine(), l2_state="cold", scheduler="best")
    with pytest.raises(UnsupportedError, match="no mode 'representative'"):
        simulate_reference(program(""), simple_machine(), l2_state="cold", mode="representative")


def test_warm_state_that_does_not_fit_is_declined() -> None:
    load = program("  [B------:R-:W0:S01] LDG R4 = R2:2 bytes=128 stream=a")
    with pytest.raises(UnsupportedError, match="touches 512 bytes, h100 has 256 of L2"):
        simulate_reference(load, simple_machine(l2_bytes=256))


def oldest(ready: int, last: int, subpartition: int, cycle: int) -> int:
    """Take the lowest context."""
    return (ready & -ready).bit_length() - 1


def test_users_policy_decides() -> None:
    two = program("  [B------:R-:W-:S01] NOP", warps=5)
    result = simulate_reference(two, simple_machine(), l2_state="cold", scheduler=oldest)
    assert states(result, 0) == {"SELECTED": 2}


def test_policy_that_picks_a_warp_that_cannot_issue_is_refused() -> None:
    with pytest.raises(UserError, match="chose bit 7 of mask 0b1; it must choose one that is set"):
        simulate_reference(program(""), simple_machine(), l2_state="cold", scheduler=lambda *_: 7)


@pytest.mark.parametrize("base", [UnitModel, Branch, TensorMemoryUnit])
def test_a_base_of_units_is_no_unit(base: type[UnitModel]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        base(None)  # type: ignore[arg-type]
