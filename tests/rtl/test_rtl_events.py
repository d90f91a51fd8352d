"""Does an instruction cause the events that the design gives it, and does power follow from them?"""

import pytest

from heddle.cost.energies import Energies
from heddle.cost.fiber_events import count, of_instruction
from heddle.cost.kernel_power import added_power
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import Bind
from heddle.machine import machine

ADD = Instruction(op="FADD", dst=Register(4), src=(Register(5), Register(6)))
REMOTE = Instruction(op="FADD", dst=Register(4), src=(Register(8, 2, place=2), Register(6)))


def test_a_local_instruction_reads_nothing_through_the_crossbar() -> None:
    assert of_instruction(ADD) == {
        "instruction": 1, "lookup_empty": 2, "request": 1, "lookup_full": 1, "empty_set": 1, "empty_clear": 1,
    }  # fmt: skip


def test_every_register_of_a_remote_instruction_goes_through_the_crossbar() -> None:
    assert of_instruction(REMOTE)["transfer"] == 3


def test_the_zero_register_is_not_looked_up() -> None:
    assert of_instruction(Instruction(op="FADD", dst=Register(4), src=(Register(RZ),))).get("lookup_empty", 0) == 0


def test_what_is_consumed_is_empty_again_and_full_no_more() -> None:
    found = of_instruction(ADD, Bind(consume=(0, 1), hold=True))
    assert (found["empty_set"], found["full_clear"], found["full_set"]) == (1 + 2, 2, 1)


def test_a_bit_instruction_changes_one_bit_and_reads_nothing() -> None:
    one = Instruction(op="DEPBAR.BIT", src=(Register(8),), bit="full", set_bit=True)
    assert of_instruction(one) == {"instruction": 1, "full_set": 1}


def test_power_is_energy_over_time_of_the_simulated_sms() -> None:
    energies = Energies({}, 0.7, {"request": 100.0}, {"empty_home_lean": 5.0, "bind_latch": 2.0}, 1000.0)
    result = {"cycles": 50, "clock_mhz": 2000.0, "simulation": {"simulated_sms": 2}}
    found = added_power({"request": 200}, result, machine("a100+fiber"), energies)
    # 200 x 100 fJ in 50 cycles of 0.5 ns on two SMs; clock 2 fJ x 2 GHz; leakage 1 mW
    assert found["by_event_mw"]["request"] == pytest.approx(200 * 100e-15 / (50 * 0.5e-9) / 2 * 1e3)
    assert found["sm_mw"] == pytest.approx(0.4 + 0.004 + 1.0)
    assert found["flop_clock_mw"] == pytest.approx(0.01)


def test_events_are_counted_by_issues_with_what_the_instruction_before_binds() -> None:
    bind = Instruction(op="DEPBAR.BIND", bind=Bind(consume=(0,)))
    found = count([bind, ADD, ADD], [3, 3, 5])
    assert (found["instruction"], found["full_clear"], found["empty_set"]) == (11, 3, 8 + 3)
