"""Are the parts of a model put together right: shapes, the chain of their products, what is said of their numbers?"""

from __future__ import annotations

import pytest

from heddle.errors import UserError
from heddle.kernels.model.shapes import models
from heddle.kernels.registry import find_entry
from heddle.machine.load import machine
from heddle.study.checks import check, check_sizes
from heddle.study.composites import questions
from heddle.study.requests import request

PARAMETERS_BILLION = {
    "llama-2-7b": 6.74,
    "llama-2-13b": 13.0,
    "llama-2-70b": 69.0,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.6,
}
"""As published with the models."""


@pytest.mark.parametrize("name", PARAMETERS_BILLION)
def test_shapes_give_the_published_number_of_parameters(name: str) -> None:
    model = models()[name]
    layer = model.hidden * (model.qkv_cols + model.query_cols) + 3 * model.hidden * model.ffn + 2 * model.hidden
    count = model.layers * layer + 2 * model.hidden * model.vocab + model.hidden
    assert count / 1e9 == pytest.approx(PARAMETERS_BILLION[name], rel=0.005)


@pytest.mark.parametrize(
    ("kernel", "gpu", "mode"),
    [pytest.param("ffn", "h100", "simt", marks=pytest.mark.slow), ("projection", "b200", "simt")],
)
def test_the_chain_of_a_part_is_right(kernel: str, gpu: str, mode: str) -> None:
    row = check(request(kernel, gpu, mode=mode, texts=check_sizes(kernel, {"tokens": 40})))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("kernel", ["ffn", "projection"])
@pytest.mark.parametrize("name", PARAMETERS_BILLION)
@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_steps_of_real_models_are_problems_of_both_forms(kernel: str, name: str, gpu: str) -> None:
    found = find_entry(kernel)
    device = machine(f"{gpu}+fiber")
    for step in found.steps(device, found.check({"model": name}), "simt"):
        for mode in ("simt", "fiber"):
            assert find_entry(step.kernel).candidates(device, step.params, mode)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "gpu"), [("ffn", "a100"), ("projection", "h100")])
def test_the_chain_of_a_part_with_quantised_weights_is_right(kernel: str, gpu: str) -> None:
    row = check(request(kernel, gpu, texts=check_sizes(kernel, {"tokens": 40, "weights": "awq"})))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_quantised_weights_multiply_fp16_only() -> None:
    with pytest.raises(UserError, match="dtype is bf16"):
        questions(request("ffn", "a100", texts={"weights": "awq", "dtype": "bf16"}))


def test_gate_and_up_projection_are_one_product_of_twice_the_columns() -> None:
    found = find_entry("ffn")
    gate_up, down = found.steps(machine("h100"), found.check({"model": "llama-3-8b", "tokens": 64}), "simt")
    assert (gate_up.params["n"], gate_up.params["k"]) == (2 * 14336, 4096)
    assert (down.params["n"], down.params["k"]) == (4096, 14336)
