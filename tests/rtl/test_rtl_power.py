"""Do gates compute what their functions say, and does power say what can be worked out by hand?"""

import pytest

from heddle.cost.gates import Gates
from heddle.cost.netlist import Instance, Netlist
from heddle.cost.power import energy
from heddle.cost.timing import Conditions, analyse
from small_library import library

AROUND = Conditions(period=100, input_delay=10, output_delay=15, slew=20, load=4)


def nand() -> Netlist:
    return Netlist(
        "nand", library(), {"one": Instance("NAND2", {"A": 2, "B": 3, "Y": 4})}, {"a": [2], "b": [3]}, {"y": [4]}
    )


def flop() -> Netlist:
    return Netlist(
        "flop", library(), {"one": Instance("DFF", {"D": 2, "CK": 3, "Q": 4})}, {"d": [2], "clk": [3]}, {"q": [4]}
    )


def test_a_gate_computes_its_function_for_every_run() -> None:
    assert Gates(nand(), runs=4).cycle({"a": [0b1010], "b": [0b1100]})["y"] == [0b0111]


def test_a_flop_answers_a_cycle_later() -> None:
    gates = Gates(flop(), runs=2)
    assert [gates.cycle({"d": [word]})["q"] for word in (0b01, 0b10, 0b11)] == [[0], [0b01], [0b10]]


def test_a_latch_keeps_its_value_while_it_is_closed() -> None:
    cells = {"one": Instance("LAT", {"D": 2, "G": 3, "Q": 4})}
    gates = Gates(Netlist("latch", library(), cells, {"d": [2], "g": [3]}, {"q": [4]}), runs=1)
    assert [gates.cycle({"d": [d], "g": [g]})["q"] for d, g in ((1, 1), (0, 0), (0, 1))] == [[1], [1], [0]]


def test_changes_are_counted_over_runs_and_cycles() -> None:
    gates = Gates(nand(), runs=2)
    for word in (0b00, 0b11, 0b01):
        gates.cycle({"a": [word], "b": [0b11]})
    assert gates.toggles.rate(2) == pytest.approx((2 + 1) / (2 * 3))


def test_a_nand_that_changes_costs_its_loads_and_its_inside() -> None:
    netlist = nand()
    gates = Gates(netlist, runs=1)
    for word in (0, 1, 0, 1):
        gates.cycle({"a": [word], "b": [1]})
    found = energy(netlist, gates.toggles, analyse(netlist, AROUND), AROUND)
    # three changes in four cycles of a (1 fF) and y (4 fF) at 1 V, and 1 fJ inside for each of y
    assert found.load_fj == pytest.approx(3 / 4 * (1 + 4) / 2)
    assert found.internal_fj == pytest.approx(3 / 4)
    assert found.leakage_uw == pytest.approx(0.005)


def test_a_resting_flop_costs_its_clock_pin() -> None:
    netlist = flop()
    gates = Gates(netlist, runs=1)
    for _ in range(3):
        gates.cycle({"d": [0]})
    found = energy(netlist, gates.toggles, analyse(netlist, AROUND), AROUND)
    assert found.logic_fj == 0
    assert found.clock_fj == pytest.approx(2 * 0.5 / 2 + 2 * 0.25)
    assert found.power_mw(2.0) == pytest.approx(1.0 * 2.0 * 1e-3 + 9e-6)
