"""Decoding on B200: is a missing wait or arrival of its roles found?"""

from __future__ import annotations

import dataclasses

import pytest

from heddle import interp, pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.study.requests import Request, request
from native_mutants import mutants

ONE_ITEM = 7
"""What only a second work item of a CTA needs, which has one: waits that pass at once, arrivals that none awaits."""


def found_by(mutant: WarpProgram, asked: Request) -> str:
    """Return what finds a mutant: that it does not end, a hazard, wrong numbers; nothing if it survives."""
    inputs, outputs = find_kernel(asked.kernel).reference(asked.params)
    try:
        report = interp.check(mutant, asked.machine, inputs, outputs)
    except UserError:
        return "run"
    return "hazard" if report.hazards else "" if report.ok else "numbers"


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_reported() -> None:
    sizes = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 1800, "num_splits": 1, "head_dim": 64}
    asked = request("decode_split_fa4", "b200", texts=sizes)
    asked = dataclasses.replace(asked, machine=asked.machine.replace(sms=2))
    every = list(mutants(pipeline.compile_kernel(asked.kernel, asked.machine, asked.params)))
    assert len(every) > 20
    survivors = [name for name, mutant in every if not found_by(mutant, asked)]
    assert len(survivors) <= ONE_ITEM, survivors
