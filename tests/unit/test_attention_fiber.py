"""Does the FIBER-native attention of H100 compute right numbers without a hazard?"""

from __future__ import annotations

import dataclasses

import pytest

from attention_fiber import PROBLEM, checked, compiled
from fiber_kernels import run

VARIANTS = {
    "two tiles": {},
    "one block of keys": {"seqlen_q": 128, "seqlen_kv": 128},
    "causal": {"causal": True},
    "odd lengths": {"seqlen_q": 200, "seqlen_kv": 300},
    "bf16": {"seqlen_q": 128, "dtype": "bf16"},
    "grouped heads": {"seqlen_q": 128, "heads_q": 2},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_are_right_and_no_hazard_is_found(name: str) -> None:
    report = checked(dataclasses.replace(PROBLEM, **VARIANTS[name]))
    assert report.ok, report.lines()


def test_every_datum_is_given_back_at_the_end() -> None:
    assert run(compiled()).warnings == []
