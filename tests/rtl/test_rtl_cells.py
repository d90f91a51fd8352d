"""Are Liberty files read as they say, in one set of units, and are their functions understood?"""

import pytest

from heddle.cost.cells import library_of
from heddle.cost.functions import expression
from heddle.cost.liberty import parse
from heddle.errors import UserError
from small_library import TEXT, library


def test_a_value_without_a_semicolon_ends_with_its_line() -> None:
    assert library().cells["INV"].area == 1.0


def test_leakage_is_that_without_a_condition() -> None:
    assert library().cells["NAND2"].leakage == 5.0


def test_a_table_is_linear_between_its_points_and_beyond() -> None:
    delay = library().cells["INV"].pins["Y"].arcs[0].delay["rise"]
    assert [delay.at(50, load) for load in (0, 4, 20)] == [10, 14, 30]


def test_axes_are_taken_by_their_template() -> None:
    swapped = TEXT.replace("variable_1 : input_net_transition", "variable_1 : total_output_net_capacitance")
    delay = library_of(parse(swapped, "swapped.lib")).cells["INV"].pins["Y"].arcs[0].delay["rise"]
    assert (delay.at(0, 50), delay.at(10, 50)) == (10, 20)  # what was the load is the slew


def test_units_are_turned_into_ps_ff_and_fj() -> None:
    text = TEXT.replace('"1ps"', '"1ns"').replace("(1, ff)", "(1, pf)")
    inverter = library_of(parse(text, "other.lib")).cells["INV"]
    pin = inverter.pins["Y"]
    assert inverter.pins["A"].capacitance == pytest.approx(1000)
    assert pin.arcs[0].delay["fall"].at(0, 0) == pytest.approx(10_000)
    assert pin.internal["A"][0].mean(0, 0) == pytest.approx(1000)


@pytest.mark.parametrize(
    ("function", "value"),
    [("(!(A B))", 0b0111), ("A' + B'", 0b0111), ("!A | !B", 0b0111), ("A ^ B", 0b0110), ("A*!B+!A*B", 0b0110)],
)
def test_a_function_has_its_truth_table(function: str, value: int) -> None:
    text, names = expression(function)
    assert names == {"A", "B"}
    assert eval(text.format(A="0b1010", B="0b1100"), {"M": 0b1111}) == value


@pytest.mark.parametrize("function", ["", "(A", "A +", "A )"])
def test_a_broken_function_is_refused(function: str) -> None:
    with pytest.raises(UserError):
        expression(function)


def test_what_is_no_liberty_file_is_refused_with_the_line() -> None:
    with pytest.raises(UserError, match="cannot be read from line"):
        parse("library (x) {\n ? }", "broken.lib")
