"""Does a question know what is known of the script that measured its case?"""

import pytest

from heddle.study.case_file import own_cases
from heddle.study.requests import request_of

CASES = {case.case_id: case for case in own_cases()}


@pytest.mark.parametrize(
    ("case_id", "simulation"),
    [
        ("flashgpu-fa3-b64-s512-h16-d128-causal", "chip"),
        ("flashgpu-fa3-b32-s1024-h16-d128-full", "chip"),
        ("flashgpu-fa3-b16-s2048-h16-d128-causal", "auto"),
        ("fa3w8-005", "auto"),
    ],
)
def test_short_attention_runs_on_the_whole_chip(case_id: str, simulation: str) -> None:
    assert request_of(CASES[case_id]).simulation == simulation


def test_a_time_includes_the_launch_only_where_the_case_says_so() -> None:
    assert {case.includes_launch for case in CASES.values()} == {False, True}
    assert all(request_of(case).includes_launch == case.includes_launch for case in CASES.values())
