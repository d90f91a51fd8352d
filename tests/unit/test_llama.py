"""Is a model made of the right launches, and is the chain of one layer right?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.kernels.registry import find_entry, find_kernel
from heddle.machine.load import machine
from heddle.study.checks import check, check_sizes
from heddle.study.composites import questions
from heddle.study.requests import request

LAYER = ["attention_norm", "qkv", "attention", "output", "ffn_norm", "ffn.gate_up", "ffn.down"]
CHAINS = [
    ("a100", {"phase": "decode", "seqlen": 600, "batch": 2}),
    ("h100", {"precision": "w4a16", "seqlen": 24}),
    ("b200", {"precision": "w4a16", "scheme": "aqlm_2x8", "phase": "decode", "batch": 3}),
]


def asked(**texts: Any) -> list[tuple[str, int]]:
    return [(q.name, q.count) for q in questions(request("llama", "h100", texts=texts))]


def test_a_model_has_each_launch_of_a_layer_as_often_as_layers() -> None:
    assert asked(model="llama-3-70b") == [*((name, 80) for name in LAYER), ("final_norm", 1), ("lm_head", 1)]
    assert asked(model="llama-3-70b", part="layer") == [(name, 1) for name in LAYER]


def test_only_the_last_token_of_a_sequence_goes_to_the_head() -> None:
    found = find_entry("llama")
    steps = found.steps(machine("h100"), found.check({"batch": 3, "seqlen": 128}), "simt")
    assert (steps[1].params["m"], steps[-1].params["m"]) == (384, 3)


def test_the_work_is_twice_the_weights_a_token_and_the_attention() -> None:
    found = find_entry("llama")
    params = found.check({"model": "llama-2-7b", "seqlen": 4096})
    steps = {step.name: step for step in found.steps(machine("h100"), params, "simt")}
    flops = sum(s.count * find_entry(s.kernel).flops(s.params) for n, s in steps.items() if n in ("qkv", "output"))
    assert flops == 2 * 4096 * 32 * (4096 * 3 * 4096 + 4096 * 4096)


def test_decoding_puts_one_token_of_each_sequence_through_a_layer_and_all_keys_through_attention() -> None:
    found = find_entry("llama")
    params = found.check({"phase": "decode", "batch": 3, "seqlen": 4096})
    steps = {step.name: step for step in found.steps(machine("h100"), params, "simt")}
    assert [steps[name].params["m"] for name in ("qkv", "output", "lm_head")] == [3, 3, 3]
    assert (steps["attention"].kernel, steps["attention"].params["seqlen_kv"]) == ("decode_attention", 4096)


def test_quantised_products_have_rotation_and_gate_behind_them() -> None:
    names = [name for name, _ in asked(precision="w4a16", part="layer")]
    assert names == ["attention_norm", "qkv", "rope", *LAYER[2:6], "ffn.silu_mul", "ffn.down"]


def test_the_head_is_not_quantised() -> None:
    found = [(q.name, q.asked.kernel) for q in questions(request("llama", "a100", texts={"precision": "w4a16"}))]
    assert [name for name, kernel in found if kernel == "w4a16"] == ["qkv", "output", "ffn.gate_up", "ffn.down"]
    assert found[-1] == ("lm_head", "gemm")


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
@pytest.mark.parametrize("model", ["llama-2-13b", "llama-3-70b"])
@pytest.mark.parametrize("precision", ["fp16", "w4a16"])
def test_every_launch_of_decoding_has_a_tile(gpu: str, model: str, precision: str) -> None:
    for batch in (1, 256):
        texts = {"model": model, "phase": "decode", "precision": precision, "batch": batch, "part": "layer"}
        for question in questions(request("llama", gpu, texts=texts)):
            step = question.asked
            assert find_kernel(step.kernel).candidates(step.machine, step.params, "simt")


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_the_chain_of_a_layer_is_right(gpu: str) -> None:
    row = check(request("llama", gpu, texts=check_sizes("llama", {"part": "layer", "seqlen": 24, "batch": 2})))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "given"), CHAINS)
def test_the_chain_of_decoding_and_of_quantised_weights_is_right(gpu: str, given: dict[str, Any]) -> None:
    row = check(request("llama", gpu, texts=check_sizes("llama", {"part": "layer", **given})))
    assert (row["passed"], row["hazards"]) == (True, [])
