"""Does `direction` of attention ask for the launches that an architecture has, fed by what comes before them?"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.kernels.attention import passes
from heddle.kernels.attention.backward.launches import BackwardStep
from heddle.kernels.attention.backward.rows_kernel import PREPROCESS
from heddle.kernels.attention.kernel import PARAMETERS
from heddle.kernels.attention.reference import packed
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.registry import find_kernel
from heddle.study import composites
from heddle.study.case_file import read_cases
from heddle.study.checks import check
from heddle.study.requests import request, request_of

SIZES = {"batch": 1, "heads_q": 4, "heads_kv": 2, "seqlen_q": 20, "seqlen_kv": 24, "head_dim": 64}


def preprocess_only(params: Mapping[str, Any]) -> tuple[BackwardStep, ...]:
    return (BackwardStep(name="preprocess", kernel=PREPROCESS),)


@pytest.fixture
def backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass of one launch."""
    monkeypatch.setitem(passes.LAUNCHES, "sm_90", preprocess_only)


def test_both_passes_are_the_forward_kernel_and_the_backward_launches(backward: None) -> None:
    steps = composites.questions(request("attention", "h100", texts={**SIZES, "direction": "fwd+bwd"}))
    assert [(step.name, step.asked.kernel) for step in steps] == [
        ("forward", "attention"), ("preprocess", "attention_bwd_preprocess"),
    ]  # fmt: skip
    assert steps[0].asked.params["direction"] == "fwd"
    assert steps[1].asked.params["seqlen_q"] == SIZES["seqlen_q"]


def test_the_backward_launches_read_what_the_forward_kernel_wrote(backward: None) -> None:
    for direction, source in (("fwd+bwd", "forward.O"), ("bwd", None)):
        asked = request("attention", "h100", texts={**SIZES, "direction": direction})
        found = composites.composite(asked)
        assert found is not None
        assert found.steps(asked.machine, asked.params, "simt")[-1].feeds.get("O") == source


def test_the_backward_pass_reads_the_output_of_a_forward_kernel_that_packs_query_heads() -> None:
    found = passes.AttentionPasses("fwd+bwd", PARAMETERS)
    asked = request("attention", "h100", texts={**SIZES, "direction": "fwd+bwd"})
    forward = found.steps(asked.machine, asked.params, "simt")[0]
    problem = AttentionProblem(**SIZES, causal=False, dtype="fp16")
    rows = np.arange(SIZES["heads_q"] * SIZES["seqlen_q"] * SIZES["head_dim"]).reshape(SIZES["heads_q"], 20, 64)
    written = found.written(asked.params, forward, {"O_packed": packed(problem, rows).reshape(-1, 64)}, {})
    assert np.array_equal(written["O"], rows.reshape(-1, 64))


def test_an_architecture_without_a_backward_pass_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(passes.LAUNCHES, "sm_100", raising=False)
    with pytest.raises(UserError, match="backward pass of attention is not modelled for b200"):
        composites.questions(request("attention", "b200", texts={**SIZES, "direction": "bwd"}))


@pytest.mark.parametrize("direction", ["bwd", "fwd+bwd"])
def test_a_type_without_gradients_is_refused_by_direction(direction: str) -> None:
    sizes = {**SIZES, "direction": direction, "dtype": "fp8_e4m3"}
    with pytest.raises(UserError, match=rf"direction={re.escape(direction)} takes fp16 and bf16, got dtype=fp8_e4m3"):
        request("attention", "h100", texts=sizes)


def test_the_forward_kernel_is_not_taken_for_a_backward_pass() -> None:
    with pytest.raises(UserError, match="direction=bwd is a sequence of launches"):
        find_kernel("attention").problem({**SIZES, "direction": "bwd"})


def test_a_case_with_a_direction_asks_for_it(tmp_path: Path, backward: None) -> None:
    path = tmp_path / "cases.csv"
    sizes = "batch,heads_q,heads_kv,seqlen_q,seqlen_kv,head_dim"
    path.write_text(
        f"case_id,gpu,kernel,direction,{sizes},measured,unit\nx-1,h100,attention,fwd+bwd,1,4,2,20,24,64,5,us\n"
    )
    asked = request_of(read_cases(path)[0])
    assert asked.params["direction"] == "fwd+bwd"
    assert len(composites.questions(asked)) == 2


def test_both_passes_on_a100_give_the_gradients() -> None:
    """Each launch reads what the ones before it have written; LSE comes from the forward kernel."""
    row = check(request("attention", "a100", texts={**SIZES, "heads_q": 2, "heads_kv": 1, "direction": "fwd+bwd"}))
    assert row["passed"], row


@pytest.mark.parametrize(("heads_kv", "more"), [(4, []), (2, ["group_sum"])])
def test_only_grouped_queries_need_sums_over_heads(heads_kv: int, more: list[str]) -> None:
    asked = request("attention", "a100", texts={**SIZES, "heads_kv": heads_kv, "direction": "bwd"})
    assert [step.name for step in composites.questions(asked)] == ["preprocess", "main", "convert", *more]
