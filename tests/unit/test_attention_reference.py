"""Is the float64 reference of attention right?"""

from typing import Any

import numpy as np

from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionProblem


def problem(**changes: Any) -> AttentionProblem:
    sizes = {"batch": 2, "heads_q": 4, "heads_kv": 2, "seqlen_q": 5, "seqlen_kv": 7, "head_dim": 64}
    return AttentionProblem(**{**sizes, "causal": True, "dtype": "fp16", **changes})


def test_one_row_by_hand() -> None:
    inputs, expected = reference(problem(), seed=3)
    plane, row = 5, 3  # batch 1, head 1 of 4, so key head 0 of 2; sees keys 0 to 5
    scores = inputs["Q"][plane, row].astype(float) @ inputs["K"][2, :6].astype(float).T / 8
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(expected["O"][plane, row], weights @ inputs["V"][2, :6].astype(float))


def test_a_query_before_every_key_gives_zeros() -> None:
    _, expected = reference(problem(seqlen_q=9), seed=0)
    assert not expected["O"][:, :2].any()
    assert expected["O"][:, 2:].all()


def test_packed_rows_are_queries_with_their_heads_side_by_side() -> None:
    inputs, expected = reference(problem(), seed=0)
    assert inputs["Q_packed"].shape == (4, 10, 64)
    np.testing.assert_array_equal(inputs["Q_packed"][3, 2 * 4 + 1], inputs["Q"][7, 4])
    np.testing.assert_array_equal(expected["O_packed"][3, 2 * 4 + 1], expected["O"][7, 4])


def test_flops_of_a_causal_problem_are_half() -> None:
    assert problem().flops * 2 == problem(causal=False).flops == 4 * 2 * 4 * 5 * 7 * 64
