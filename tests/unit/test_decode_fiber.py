"""FIBER-native decoding: is it right at odd sizes, in one launch and in the chain, and is every missing bind found?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.study import api, composites
from heddle.study.checks import check
from heddle.study.requests import Request, request
from native_mutants import fate, mutants, rejected

SMALL = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 300, "num_splits": 2}
EVERY, SLOW_EVERY = 60, 15
"""Of so many mutants one is tried."""


def asked(kernel: str, gpu: str = "a100", **texts: Any) -> Request:
    """Ask for a launch on a GPU with two SMs."""
    found = request(kernel, gpu, mode="fiber", texts=texts)
    return dataclasses.replace(found, machine=found.machine.replace(sms=2))


def program(found: Request) -> WarpProgram:
    """Return the warp program."""
    return pipeline.compile_kernel(found.kernel, found.machine, found.params, mode="fiber")


@pytest.mark.parametrize(
    ("gpu", "changes"),
    [
        ("a100", {"heads_q": 4, "heads_kv": 4, "seqlen_kv": 129}),  # one query head a key head
        ("a100", {"heads_q": 17, "seqlen_kv": 513, "num_splits": 1, "dtype": "bf16"}),  # two items of query heads
        ("b200", {"head_dim": 64, "seqlen_kv": 257}),
    ],
)
def test_odd_sizes_are_right(gpu: str, changes: dict[str, Any]) -> None:
    row = check(asked("decode_split", gpu, **SMALL | changes))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_the_chain_is_right() -> None:
    row = api.check("decode_attention", "h100", mode="fiber", batch=2, heads_q=8, heads_kv=2, seqlen_kv=200)
    assert row["passed"]
    assert [step["name"] for step in row["steps"]] == ["split", "combine"]


def test_nothing_passes_through_shared_memory() -> None:
    found = program(asked("decode_split", **SMALL))
    assert {row.op for row in found.instructions} & {"LDS", "STS", "LDSM", "LDGSTS"} == set()


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_split_and_whole_keys_run_the_native_launch(gpu: str) -> None:
    for heads_kv in (1, 32):
        found = request("decode_attention", gpu, mode="fiber", texts={"heads_kv": heads_kv, "batch": 16})
        assert composites.questions(found)[0].asked.kernel == "decode_split"
        assert composites.questions(found)[0].note == ""


def test_splits_are_counted_for_one_thread_an_sm() -> None:
    """64 heads on 108 SMs: three splits leave 0.89 of two waves busy, two 0.59."""
    found = request("decode_attention", "a100", mode="fiber", texts={"heads_kv": 4, "batch": 16, "seqlen_kv": 4096})
    assert composites.questions(found)[0].asked.params["num_splits"] == 3


def test_other_head_sizes_run_as_today() -> None:
    found = request("decode_attention", "a100", mode="fiber", texts={"head_dim": 256, "batch": 256})
    assert [step.asked.kernel for step in composites.questions(found)] == ["decode_whole"]
    with pytest.raises(UserError, match="takes head sizes 64, 128; got 256"):
        check(asked("decode_split", **SMALL | {"head_dim": 256}))


def test_the_verifier_rejects_mutants() -> None:
    found = asked("decode_split", **SMALL)
    every = list(mutants(program(found)))
    assert len(every) > EVERY
    assert [name for name, mutant in every[::EVERY] if not rejected(mutant, found.machine)] == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_rejected_or_reported() -> None:
    found = asked("decode_split", **SMALL)
    fates = {name: fate(mutant, found) for name, mutant in list(mutants(program(found)))[::SLOW_EVERY]}
    survivors = [name for name, by in fates.items() if by not in ("verifier", "hazard", "run")]
    assert len(survivors) <= 0.05 * len(fates), survivors
