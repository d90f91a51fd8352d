"""Does the FIBER-native attention of H100 compute right numbers without a hazard?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from attention_fiber import CONFIG, PROBLEM, checked, compiled
from fiber_kernels import run
from heddle.interp.check import CheckReport

Fields = dict[str, Any]
WIDE: Fields = {"tile_n": 64, "query_stages": 1, "output_stages": 1}
VARIANTS: dict[str, tuple[Fields, Fields]] = {
    "causal, odd lengths": ({"seqlen_q": 100, "seqlen_kv": 200, "causal": True}, {"order": "dynamic"}),
    "head size 64, packed heads, Q in the pool": ({"seqlen_q": 100, "heads_q": 2, "head_dim": 64}, {"pooled": 2}),
    "head size 256": ({"seqlen_q": 64, "seqlen_kv": 128, "head_dim": 256}, WIDE),
    "barriers in place of bits": ({"seqlen_q": 64}, {"exchange": "barriers"}),
    "shared memory in place of registers": ({"seqlen_q": 64, "seqlen_kv": 128}, {"exchange": "shared", "tile_n": 64}),
}
SLOW: dict[str, tuple[Fields, Fields]] = {
    "two tiles": ({}, {}),
    "one block of keys": ({"seqlen_q": 128, "seqlen_kv": 128}, {}),
    "bf16": ({"seqlen_q": 128, "dtype": "bf16"}, {}),
    "Q in the pool": ({"seqlen_q": 256}, {"pooled": 1}),
    "a cluster": ({"seqlen_kv": 128}, {"cluster": 2}),
    "causal, several tiles": ({"causal": True}, {"order": "dynamic"}),
    "causal, head size 256": ({"causal": True, "head_dim": 256, "seqlen_q": 200}, {**WIDE, "order": "dynamic"}),
    "causal, barriers": ({"causal": True}, {"order": "dynamic", "exchange": "barriers"}),
    "causal, shared memory": ({"causal": True}, {"order": "dynamic", "exchange": "shared", "tile_n": 64}),
}


def ok(problem: Fields, config: Fields) -> CheckReport:
    """Check a variant of the small problem."""
    return checked(dataclasses.replace(PROBLEM, **problem), dataclasses.replace(CONFIG, **config))


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_are_right_and_no_hazard_is_found(name: str) -> None:
    report = ok(*VARIANTS[name])
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_numbers_are_right(name: str) -> None:
    report = ok(*SLOW[name])
    assert report.ok, report.lines()


@pytest.mark.slow
def test_every_datum_is_given_back_at_the_end() -> None:
    assert run(compiled()).warnings == []
