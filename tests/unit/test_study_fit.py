"""Does the fit find the minimum of a known function, and only move what it is given?"""

import pytest

from heddle.machine import machine
from heddle.study.case_file import own_cases
from heddle.study.fit import ATTENTION_ROWS, coordinate_search, parts, values_without, with_values


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


def test_the_share_of_the_ports_is_fitted_on_its_three_rows_only() -> None:
    fitted_on = {
        name: {case.case_id for case in rows} for names, rows in parts(machine("h100"), own_cases()) for name in names
    }
    assert fitted_on["tensor_port_share"] == set(ATTENTION_ROWS["tensor_port_share"])


def test_no_row_of_attention_is_used_for_the_other_values() -> None:
    groups = [rows for names, rows in parts(machine("h100"), own_cases()) if "tensor_port_share" not in names]
    assert {case.kernel for rows in groups for case in rows} == {"gemm"}


def test_without_its_family_the_share_is_not_fitted() -> None:
    fields = [name for names, _ in parts(machine("h100"), own_cases(), without="flashgpu-fa3") for name in names]
    assert "tensor_port_share" not in fields
