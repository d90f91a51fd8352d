"""Does interp compute the right numbers, and does it find what a missing barrier breaks?"""

from __future__ import annotations

import interp_logs as tiny
import numpy as np
import pytest

from heddle.errors import UserError
from heddle.interp import CheckReport, check, execute
from heddle.interp._arithmetic import elementwise, rounded
from heddle.interp._clocks import Knowledge, Layout
from heddle.interp._warps import Groups
from heddle.machine import machine


def report(drop: frozenset[int] = frozenset(), **timing: int) -> CheckReport:
    """Check the tiny product with instructions left out."""
    values = tiny.inputs()
    result = tiny.result(tiny.run(drop, **timing))
    return check(tiny.program(), machine("h100"), values, tiny.expected(values), result=result)


def test_a_correct_pipeline_gives_right_numbers_and_no_hazard() -> None:
    found = report()
    assert found.ok, "\n".join(found.lines())
    assert 0 < found.relative_error < 1e-3


def test_edges_are_clipped_and_filled_with_zeros() -> None:
    values = tiny.inputs(m=50, n=11)
    result = tiny.result(tiny.run())
    found = check(tiny.program(50, 11), machine("h100"), values, tiny.expected(values), result=result)
    assert found.ok, "\n".join(found.lines())


def test_reading_before_the_copy_landed_is_named_with_both_lines() -> None:
    found = report(frozenset({tiny.WAIT_FULL}))
    assert not found.ok
    hazard = next(h for h in found.hazards if h.kind == "read while being written" and h.object == "a")
    assert "gemm.py:12 TmaLoad" in hazard.text
    assert "gemm.py:17 Mma" in hazard.text
    assert hazard.text.startswith("hazard: read while being written a[")
    assert any(h.kind == "uninitialised read" for h in found.hazards)


def test_a_missing_wait_is_found_even_if_the_copy_was_fast_enough() -> None:
    found = report(frozenset({tiny.WAIT_FULL}), copy_latency=1)
    assert next(h.kind for h in found.hazards if h.object == "a") == "read not ordered after write"
    assert found.relative_error < 1e-3
    assert not found.ok


def test_overwriting_a_stage_in_use_is_named() -> None:
    found = report(frozenset({tiny.WAIT_EMPTY}), copy_latency=60)
    kinds = {h.kind for h in found.hazards if h.object == "a"}
    assert kinds & {"overwritten while being read", "overwritten without order after read", "read while being written"}
    assert any("gemm.py:12 TmaLoad" in h.text and "gemm.py:17 Mma" in h.text for h in found.hazards)


def test_releasing_a_stage_before_the_matrix_unit_has_read_it_is_found() -> None:
    found = report(frozenset({tiny.MMA_WAIT}))
    assert any(h.object == "a" and "gemm.py:12" in h.text for h in found.hazards)


def test_storing_an_accumulator_before_it_is_complete_is_found() -> None:
    found = report(frozenset({tiny.MMA_WAIT}))
    early = [h for h in found.hazards if h.object == "acc" and h.kind == "read while being written"]
    assert any("gemm.py:22 StoreGlobal" in h.text and "gemm.py:17 Mma" in h.text for h in early)


def test_repetitions_are_counted_not_listed() -> None:
    found = report(frozenset({tiny.WAIT_FULL}), copy_latency=1)
    hazard = next(h for h in found.hazards if h.object == "a")
    assert hazard.times > 1
    assert f"({'and ' + str(hazard.times - 1)} more times)" in str(hazard)


def test_a_log_without_every_cycle_is_refused() -> None:
    result = tiny.result(tiny.run())
    result.log = None
    with pytest.raises(UserError, match="needs the log of every cycle"):
        execute(tiny.program(), result, tiny.inputs())


def test_missing_input_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="no values for input tensor 'B'"):
        execute(tiny.program(), tiny.result(tiny.run()), {"A": tiny.inputs()["A"]})


def test_unknown_input_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown tensor 'D'; allowed: A, B, C"):
        execute(tiny.program(), tiny.result(tiny.run()), {**tiny.inputs(), "D": np.zeros(1)})


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    [
        ("fp16", 1 + 2**-12, 1.0),
        ("bf16", 1 + 2**-9, 1.0),
        ("fp8_e4m3", 1.06, 1.0),
        ("tf32", 1 + 2**-12, 1.0),
        ("fp32", 1 + 2**-20, 1 + 2**-20),
    ],
)
def test_values_are_rounded_to_their_type(dtype: str, value: float, want: float) -> None:
    assert rounded(np.array([value], np.float32), dtype)[0] == np.float32(want)


def test_unknown_function_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'silu'"):
        elementwise("sliu", [np.ones((1, 1), np.float32)])


def test_group_wait_leaves_the_youngest_groups_outstanding() -> None:
    groups = Groups()
    for _ in range(3):
        groups.issued += 2
        groups.close()
    assert [groups.known_after_wait(pending) for pending in (0, 1, 2, 3)] == [6, 4, 2, 0]


def test_knowledge_reaches_other_clusters_only_by_joining() -> None:
    layout = Layout.of(tiny.program())
    one, two = Knowledge.none(0, layout), Knowledge.none(1, layout)
    one.learn(0, 5)
    assert not two.knows(0, 0, 5)
    two.join(one)
    assert two.knows(0, 0, 5)
    assert not two.knows(0, 0, 6)
