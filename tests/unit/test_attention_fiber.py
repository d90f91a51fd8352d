"""Does the FIBER-native attention of H100 compute right numbers without a hazard?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from attention_fiber import CONFIG, PROBLEM, checked, compiled
from fiber_kernels import run

NARROW: dict[str, Any] = {"pooled": 2}
WIDE: dict[str, Any] = {"tile_n": 64, "query_stages": 1, "output_stages": 1}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two tiles": ({}, {}),
    "one block of keys": ({"seqlen_q": 128, "seqlen_kv": 128}, {}),
    "causal": ({"causal": True}, {"order": "dynamic"}),
    "odd lengths": ({"seqlen_q": 200, "seqlen_kv": 300}, {}),
    "bf16": ({"seqlen_q": 128, "dtype": "bf16"}, {}),
    "packed heads": ({"seqlen_q": 100, "heads_q": 2}, {"packed": True}),
    "Q in the pool": ({"seqlen_q": 256}, {"pooled": 1}),
    "head size 64": ({"seqlen_q": 128, "head_dim": 64}, NARROW),
    "a cluster": ({"seqlen_kv": 128}, {"cluster": 2}),
    "barriers in place of bits": ({"seqlen_q": 128}, {"exchange": "barriers"}),
    "shared memory in place of registers": ({"seqlen_q": 128}, {"exchange": "shared", "tile_n": 64}),
    "head size 256": ({"seqlen_q": 128, "seqlen_kv": 128, "head_dim": 256}, WIDE),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_are_right_and_no_hazard_is_found(name: str) -> None:
    problem, config = VARIANTS[name]
    report = checked(dataclasses.replace(PROBLEM, **problem), dataclasses.replace(CONFIG, **config))
    assert report.ok, report.lines()


def test_every_datum_is_given_back_at_the_end() -> None:
    assert run(compiled()).warnings == []
