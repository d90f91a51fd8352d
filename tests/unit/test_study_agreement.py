"""Do errors have the right sign, and summaries the right values?"""

from dataclasses import replace

import pytest

from heddle.errors import SourceLocation
from heddle.study.agreement import Outcome, grouped, summarize, worst
from heddle.study.case_file import Case

CASE = Case(
    case_id="dg-bf16-001", gpu="h100", kernel="gemm", direction="fwd", causal=False, dtype="bf16",
    sizes={"m": 1000, "n": 1000, "k": 1000}, measured=100.0, unit="us", measured_min=100.0, measured_max=100.0,
    clock_mhz=None, implementation="x", l2_state="flushed", includes_launch=False, power_note="", quality="",
    source="", where=SourceLocation("f", 2),
)  # fmt: skip


def outcome(simulated_us: float, **changes: object) -> Outcome:
    return Outcome(case=replace(CASE, **changes), simulated_us=simulated_us)  # type: ignore[arg-type]


def test_a_slower_simulation_has_a_positive_error() -> None:
    assert outcome(110.0).error == pytest.approx(0.10)


def test_the_error_is_in_time_when_the_case_is_in_tflops() -> None:
    slow = outcome(200.0, measured=20.0, measured_min=20.0, measured_max=20.0, unit="tflops")  # 2e9 FLOPs: 100 us
    assert slow.error == pytest.approx(1.0)


def test_the_error_inside_the_interval_is_zero() -> None:
    assert outcome(104.0, measured_max=105.0).error == 0.0


@pytest.mark.parametrize(("simulated", "error"), [(95.0, -0.05), (210.0, 0.05)])
def test_the_error_outside_the_interval_is_to_its_nearest_end(simulated: float, error: float) -> None:
    assert outcome(simulated, measured_max=200.0).error == pytest.approx(error)


def test_an_interval_in_tflops_is_turned_round() -> None:
    fast = outcome(50.0, measured=20.0, measured_min=10.0, measured_max=20.0, unit="tflops")  # 100 to 200 us
    assert fast.error == pytest.approx(-0.5)


def test_the_simulated_value_is_in_the_unit_of_the_case() -> None:
    row = outcome(200.0, measured=20.0, measured_min=20.0, measured_max=20.0, unit="tflops").as_row()
    assert row["simulated"] == pytest.approx(10.0)


def test_the_summary_keeps_sign_in_the_bias_only() -> None:
    summary = summarize([outcome(110.0), outcome(80.0)])
    assert (summary.mean_abs_error, summary.max_abs_error, summary.bias) == pytest.approx((0.15, 0.2, -0.05))


def test_the_correlation_of_proportional_times_is_one() -> None:
    cases = [outcome(2.0 * t, measured=t, measured_min=t, measured_max=t) for t in (1.0, 5.0, 7.0)]
    assert summarize(cases).pearson == pytest.approx(1.0)


def test_two_cases_have_no_correlation() -> None:
    assert summarize([outcome(110.0), outcome(80.0)]).pearson is None


def test_the_worst_come_first_whatever_their_sign() -> None:
    assert [o.simulated_us for o in worst([outcome(105.0), outcome(80.0), outcome(110.0)], 2)] == [80.0, 110.0]


def test_groups_keep_the_order_of_appearance() -> None:
    cases = [outcome(1.0, gpu="h100"), outcome(1.0, gpu="a100"), outcome(1.0, gpu="h100")]
    assert {gpu: len(group) for gpu, group in grouped(cases, lambda o: o.case.gpu).items()} == {"h100": 2, "a100": 1}
