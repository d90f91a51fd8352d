"""Does static timing say what can be worked out by hand, and does fan-out repair leave no net with many loads?"""

import pytest

from heddle.cost.buffering import MAX_FAN_OUT, repair
from heddle.cost.netlist import Instance, Net, Netlist, from_json, to_json
from heddle.cost.timing import Conditions, analyse
from small_library import library

AROUND = Conditions(period=100, input_delay=10, output_delay=15, slew=20, load=4)


def chain() -> Netlist:
    """Two inverters and a NAND of both: a -> INV -> INV -> y, z = !(a' a'')."""
    cells: dict[str, Instance] = {
        "one": Instance("INV", {"A": 2, "Y": 3}),
        "two": Instance("INV", {"A": 3, "Y": 4}),
        "three": Instance("NAND2", {"A": 3, "B": 4, "Y": 5}),
    }
    return Netlist("chain", library(), cells, {"a": [2]}, {"z": [5]})


def clocked(logic: int = 1) -> Netlist:
    """A flop, inverters, a flop."""
    cells = {"first": Instance("DFF", {"D": 2, "CK": 3, "Q": 10})}
    for k in range(logic):
        cells[f"inverter{k}"] = Instance("INV", {"A": 10 + k, "Y": 11 + k})
    cells["second"] = Instance("DFF", {"D": 10 + logic, "CK": 3, "Q": 4})
    return Netlist("clocked", library(), cells, {"d": [2], "clk": [3]}, {"q": [4]})


def test_arrivals_add_up_along_the_worst_path() -> None:
    timing = analyse(chain(), AROUND)
    # input 10; INV drives two pins: 12; INV drives one: 11; NAND drives the port's 4: 14; then 15 after the port
    assert timing.arrival[5, "rise"] == 10 + 12 + 11 + 14
    assert timing.needed == 62


def test_a_path_names_its_nets_from_start_to_end() -> None:
    timing = analyse(chain(), AROUND)
    assert [net for net, _ in timing.path(timing.worst_end)] == [2, 3, 4, 5]


def test_a_flop_starts_at_the_edge_and_ends_with_its_setup() -> None:
    timing = analyse(clocked(), AROUND)
    assert timing.ends["second/D"] == (10 + 1) + (10 + 1) + 30


def test_a_loop_without_a_flop_is_refused() -> None:
    cells = {"one": Instance("INV", {"A": 2, "Y": 3}), "two": Instance("INV", {"A": 3, "Y": 2})}
    with pytest.raises(RuntimeError, match="loop without a flop"):
        analyse(Netlist("ring", library(), cells), AROUND)


def wide(loads: int) -> Netlist:
    """A flop that drives many inverters."""
    cells = {"flop": Instance("DFF", {"D": 2, "CK": 3, "Q": 4})}
    outputs: list[Net] = []
    for k in range(loads):
        cells[f"inverter{k}"] = Instance("INV", {"A": 4, "Y": 10 + k})
        outputs.append(10 + k)
    return Netlist("wide", library(), cells, {"d": [2], "clk": [3]}, {"y": outputs})


@pytest.mark.parametrize("loads", [1, 12, 13, 144, 145, 500])
def test_no_net_has_more_loads_than_the_limit(loads: int) -> None:
    netlist = wide(loads)
    repair(netlist)
    assert max(len(pins) for pins in netlist.loads().values()) <= MAX_FAN_OUT


def test_few_loads_need_no_buffer() -> None:
    assert repair(wide(MAX_FAN_OUT)) == 0


def test_every_load_is_still_driven_by_the_flop() -> None:
    netlist = wide(500)
    repair(netlist)
    drivers = netlist.drivers()
    for k in range(500):
        net = netlist.cells[f"inverter{k}"].nets["A"]
        while drivers[net][0] != "flop":
            net = netlist.cells[drivers[net][0]].nets["A"]


def test_buffers_make_a_wide_net_quicker() -> None:
    netlist = wide(500)
    before = analyse(netlist, AROUND).needed
    repair(netlist)
    assert analyse(netlist, AROUND).needed < before / 4


def test_the_clock_is_left_alone() -> None:
    cells = {f"flop{k}": Instance("DFF", {"D": 2, "CK": 3, "Q": 10 + k}) for k in range(MAX_FAN_OUT)}
    cells["last"] = Instance("DFF", {"D": 10, "CK": 3, "Q": 9})
    netlist = Netlist("clock", library(), cells, {"d": [2], "clk": [3]}, {})
    assert repair(netlist) == 0


def test_a_netlist_survives_its_way_through_json() -> None:
    netlist = chain()
    assert from_json(to_json(netlist), "chain", library()).cells == netlist.cells
