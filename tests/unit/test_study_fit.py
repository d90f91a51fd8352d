"""Does the fit find the minimum of a known function, and only move what it is given?"""

import pytest

from heddle.machine import machine
from heddle.study.fit import coordinate_search, values_without, with_values


def test_the_search_comes_near_the_minimum() -> None:
    found = coordinate_search({"a": 100.0, "b": 10.0}, lambda v: abs(v["a"] / 150.0 - 1.0) + abs(v["b"] / 8.0 - 1.0))
    assert found == {"a": pytest.approx(150.0, rel=0.02), "b": pytest.approx(8.0, rel=0.02)}


def test_the_search_stays_where_nothing_is_better() -> None:
    assert coordinate_search({"a": 100.0}, lambda v: abs(v["a"] - 100.0)) == {"a": 100.0}


def test_whole_number_fields_stay_whole() -> None:
    changed = with_values(machine("h100"), {"tma_extra_latency_cycles": 123.4, "clock_burst_mhz": 1612.5})
    assert (changed.tma_extra_latency_cycles, changed.clock_burst_mhz) == (123, 1612.5)


def test_a_family_that_was_not_left_out_has_no_values() -> None:
    assert values_without("h100", "no-such-family") is None
