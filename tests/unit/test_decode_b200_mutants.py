"""Decoding on B200: is a missing wait or arrival of its roles found?"""

from __future__ import annotations

import dataclasses

import pytest

from heddle import pipeline
from heddle.study.requests import request
from native_mutants import fate, mutants

EVERY = 2
"""Of so many mutants one is tried."""


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_reported() -> None:
    found = request("decode_split_fa4", "b200", texts={
        "batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 1200, "num_splits": 2, "head_dim": 64,
    })  # fmt: skip
    found = dataclasses.replace(found, machine=found.machine.replace(sms=2))
    program = pipeline.compile_kernel(found.kernel, found.machine, found.params)
    every = list(mutants(program))
    assert len(every) > 20
    fates = {name: fate(mutant, found) for name, mutant in every[::EVERY]}
    survivors = [name for name, by in fates.items() if by not in ("hazard", "run")]
    assert survivors == []
