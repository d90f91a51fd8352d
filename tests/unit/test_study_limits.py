"""Does a comparison name the unit that limits FIBER, or what its wefts wait for, and why the paper's gain differs?"""

from typing import Any

import pytest

from heddle.study.limits import limit


def compared(tensor: float, use: float, speedup: float, base: float, **more: Any) -> dict[str, Any]:
    """A comparison whose FIBER run has these shares; the paper has 1.57."""
    lines = [{"name": "L2 Cache Throughput", "value": 30.0}, {"name": "Duration", "value": 1000.0}]
    fiber = {
        "pipes": {"tensor": tensor, "sfu": 0.5, "fma": 0.25, "fp32": 0.25},
        "speed_of_light": lines,
        "read_ports": {},
        "issue_utilization": 0.4,
        "tensor_utilization": use,
        "stalls_by_role": {"softmax": {"issued": 0.5, "dispatch_stall": 0.3, "pool_empty": 0.1, "not_selected": 0.4}},
        "params": {"causal": 0},
        "choice": {"origin": "the fastest of 3 candidates"},
    }
    row = {"fiber": fiber, "baseline": {"tensor_utilization": base}, "speedup": speedup, "absent": {}, "steps": []}
    return {**row, "ceiling_speedup": 1 / base, "paper": {"speedup": 1.57}, **more}


def test_a_saturated_unit_is_the_limit() -> None:
    found = limit(compared(tensor=0.97, use=0.96, speedup=1.5, base=0.64))
    assert (found["unit"], found["saturated"]) == ("tensor", True)
    assert found["text"] == "tensor 97.0 %, sfu 50.0 %, issue slots 40.0 %"


def test_full_read_ports_are_a_limit() -> None:
    row = compared(tensor=0.82, use=0.81, speedup=0.9, base=0.84)
    row["fiber"]["read_ports"] = {"instructions": 0.36, "products": 0.57}
    assert limit(row)["text"].startswith("read ports 93.0 %, tensor 82.0 %")


def test_without_a_saturated_unit_the_waits_of_the_busiest_role_stand_there() -> None:
    found = limit(compared(tensor=0.8, use=0.8, speedup=1.5, base=0.55))
    assert "no unit saturated; softmax waits: dispatch_stall 30.0 %, pool_empty 10.0 %" in found["text"]


def test_tensor_time_that_is_not_useful_is_told() -> None:
    text = limit(compared(tensor=0.96, use=0.84, speedup=1.5, base=0.6))["text"]
    assert text.endswith("of the tensor time 87.5 % useful (padding, SMs that end earlier, or have no work)")


@pytest.mark.parametrize(
    ("speedup", "base", "why"),
    [
        (1.5, 0.6, ""),
        (1.2, 0.8, "above the ceiling of 1.25: the baseline uses 80.0 % of the tensor cores already"),
        (1.2, 0.5, "tensor 97.0 %"),
        (1.9, 0.5, "the baseline uses 50.0 % of the tensor cores here"),
    ],
)
def test_a_gain_far_from_the_papers_has_a_reason(speedup: float, base: float, why: str) -> None:
    assert limit(compared(tensor=0.97, use=0.96, speedup=speedup, base=base))["paper"] == why


def test_where_dram_is_busier_than_tensor_cores_it_is_the_reason() -> None:
    row = compared(tensor=0.1, use=0.1, speedup=1.2, base=0.1)
    row["baseline"]["speed_of_light"] = [{"name": "DRAM Throughput", "value": 96.0}]
    assert limit(row)["paper"] == "the baseline keeps DRAM 96.0 % busy here"


def test_a_gain_below_the_papers_without_a_full_unit_has_the_waits_as_its_reason() -> None:
    why = limit(compared(tensor=0.8, use=0.8, speedup=1.2, base=0.5))["paper"]
    assert why == "no unit saturated (tensor 80.0 %); waits: dispatch_stall 30.0 %, pool_empty 10.0 %"


def test_without_a_fiber_kernel_the_reason_is_why_there_is_none() -> None:
    row = compared(tensor=0.9, use=0.9, speedup=1.0, base=0.5, fiber=None, absent={"fiber": "no kernel"})
    assert limit(row)["text"] == "no kernel"


@pytest.mark.parametrize(("speedup", "said"), [(1.01, ""), (0.9, "the fastest of 3 candidates")])
def test_where_no_mapping_beats_todays_kernel_that_is_said(speedup: float, said: str) -> None:
    found = limit(compared(tensor=0.97, use=0.96, speedup=speedup, base=0.9))["no_gain"]
    assert found == (said and f"no searched mapping beats today's kernel ({said})")


def step(name: str, baseline: int, fiber: int, share: float, note: str = "") -> dict[str, Any]:
    return {
        "name": name, "note": note, "baseline_cycles": baseline, "fiber_cycles": fiber, "fiber_share": share,
        "speedup": baseline / fiber,
    }  # fmt: skip


def test_of_a_sequence_the_steps_that_gain_nothing_are_named_but_those_as_today() -> None:
    steps = [step("up", 90, 100, 0.5), step("down", 110, 100, 0.25), step("add", 50, 50, 0.25, note="as today")]
    found = limit(compared(tensor=0.97, use=0.96, speedup=0.99, base=0.9, steps=steps))
    assert found["no_gain"] == "no searched mapping beats today's kernel of: up 0.90"


def test_launches_as_today_are_the_reason_of_a_gain_below_the_papers() -> None:
    steps = [step("main", 150, 100, 0.6), step("add", 60, 60, 0.4, note="as today")]
    found = limit(compared(tensor=0.6, use=0.6, speedup=1.2, base=0.5, steps=steps))
    assert found["paper"] == "40.0 % of the cycles are launches as today; the others gain 1.50"
