"""Are the kernels around the main backward kernel right, do they move what they must, and is the rest refused?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.kernels.attention.backward.reference import backward, group_sums
from heddle.kernels.attention.reference import attention
from heddle.kernels.attention.shape import AttentionProblem
from heddle.study.checks import check
from heddle.study.requests import request
from heddle.study.runs import candidates

SMALL: dict[str, dict[str, Any]] = {
    "attention_bwd_preprocess": {"batch": 1, "heads_q": 3, "seqlen_q": 77},
    "attention_bwd_convert": {"batch": 1, "heads_q": 3, "seqlen_q": 77},
    "attention_bwd_group_sum": {"batch": 2, "heads_q": 6, "heads_kv": 2, "seqlen_q": 5, "seqlen_kv": 77},
}


def problem(**changes: Any) -> AttentionProblem:
    sizes = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 5, "seqlen_kv": 7, "head_dim": 8, "causal": True}
    return AttentionProblem(**{**sizes, "dtype": "fp16", **changes})


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    ("head_dim", "gpu", "mode", "dtype"),
    [(64, "a100", "simt", "fp16"), (128, "h100", "cuda-native", "bf16"), (256, "a100", "simt", "bf16")],
)
def test_odd_lengths_are_right(name: str, head_dim: int, gpu: str, mode: str, dtype: str) -> None:
    row = check(request(name, gpu, mode=mode, texts={**SMALL[name], "head_dim": head_dim, "dtype": dtype}))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(("name", "read", "written"), [("preprocess", 2 * 2, 4), ("convert", 4, 2)])
def test_an_element_is_read_and_written_once(name: str, read: int, written: int) -> None:
    sizes = {"batch": 1, "heads_q": 4, "seqlen_q": 1024, "head_dim": 128}
    asked = request(f"attention_bwd_{name}", "a100", texts=sizes)
    traffic = pipeline.run_once(asked.kernel, asked.machine, asked.params, clock_mhz=1410.0, l2_state="cold")["traffic"]
    elements = 4 * 1024 * 128
    column = 4 * elements // 128 if name == "preprocess" else 0
    assert traffic["l2_read_bytes"] == read * elements
    assert traffic["l2_write_bytes"] == written * elements + column


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [
        ("preprocess", {"rows": 48}, "multiples of 32"),
        ("group_sum", {"heads_q": 128, "heads_kv": 1}, "code for up to 64"),
        ("group_sum", {"heads_q": 6, "heads_kv": 4}, "must be a multiple"),
    ],
)
def test_what_cannot_run_is_refused(name: str, params: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        _built(name, params)


def test_a_pass_without_parts_for_each_query_head_takes_any_group() -> None:
    _built("convert_keys", {"heads_q": 128, "heads_kv": 1, "seqlen_q": 64}, "h100")


def _built(name: str, params: dict[str, int], gpu: str = "a100") -> None:
    asked = request(f"attention_bwd_{name}", gpu, texts=params)
    pipeline.tile_program(asked.kernel, asked.machine, asked.params, candidates(asked)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_slopes_of_the_forward_pass(causal: bool) -> None:
    at = problem(causal=causal)
    found = backward(at, seed=3, round_o=False)
    for name, gradient in (("q", found.dq), ("k", group_sums(at, found.dk)), ("v", group_sums(at, found.dv))):
        ends = []
        for step in (1e-5, -1e-5):
            moved = {"q": found.q.copy(), "k": found.k.copy(), "v": found.v.copy()}
            moved[name][0, 2, 3] += step
            ends.append(float((attention(at, moved["q"], moved["k"], moved["v"]) * found.do).sum()))
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient[0, 2, 3], rel=1e-5)


def test_rows_without_keys_have_no_gradient() -> None:
    found = backward(problem(seqlen_q=7, seqlen_kv=3), seed=0)
    assert not found.dq[:, :4].any()
    assert np.isfinite(found.dk).all()
    assert np.isfinite(found.lse).all()
