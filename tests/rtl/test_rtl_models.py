"""Do the equations between nodes and the crossbar's model give published values?"""

import pytest

from heddle.cost.crossbar_model import MUX2_AREA_UM2, crossbar, wire_fj
from heddle.cost.energies import shipped
from heddle.cost.scaling import area_ratio, energy, energy_ratio
from heddle.errors import UserError


@pytest.mark.parametrize(("node", "voltage", "value"), [("32", 0.9, 0.4571), ("65", 1.3, 2.604)])
def test_energies_are_those_of_the_corrigendum(node: str, voltage: float, value: float) -> None:
    assert energy(node, voltage) == pytest.approx(value, rel=1e-3)


def test_energy_from_16_to_7_nm() -> None:
    assert energy_ratio("16", 0.8) == pytest.approx(0.398, abs=0.001)


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(UserError, match="node with scaling"):
        area_ratio("3")


def test_a_crossbar_of_four_ports_has_a_multiplexer_for_each_way_of_a_bit() -> None:
    model = crossbar(4, 1024, 2.5)
    assert model.instances == 16384
    assert model.area_um2 == pytest.approx(16384 * MUX2_AREA_UM2 / 17)


def test_a_wire_costs_its_capacitance() -> None:
    assert wire_fj(1, 100, 1.0, activity=1.0) == pytest.approx(0.166 * 100 / 2)


def test_the_shipped_table_names_its_library_and_command() -> None:
    table = shipped()
    assert table.source["liberty"]
    assert "heddle.cost.energies" in table.source["command"]
    assert all(value > 0 for value in table.events.values())
