"""Decoding: are keys split as the open kernel splits them, and is the sum of the splits right?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heddle import interp, pipeline
from heddle.errors import UserError
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.decode.reference import parts, whole
from heddle.kernels.attention.decode.shape import (
    DecodeProblem,
    split_count,
    split_count_fa3,
    split_count_fa4,
    used_splits,
)
from heddle.kernels.registry import find_entry, find_kernel
from heddle.machine import machine
from heddle.study import api, catalog, composites
from heddle.study.case_file import read_cases
from heddle.study.checks import check_sizes
from heddle.study.requests import request, request_of

SMALL = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 300}
PROBLEM = DecodeProblem(batch=2, heads_q=4, heads_kv=2, seqlen_kv=300, head_dim=128, dtype="fp16", num_splits=3)


def launches(gpu: str = "a100", **params: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return kernel and parameters of each launch."""
    steps = composites.questions(request("decode_attention", gpu, texts=params))
    return [(step.asked.kernel, step.asked.params) for step in steps]


@pytest.mark.parametrize(
    ("planes", "keys", "release", "expected"),
    [
        (48, 65536, 1, 2),  # 96 of 108 places, 0.89 of a wave: the example in the open source
        (87, 65536, 1, 1),  # 0.8 of the places are taken
        (48, 65536, 0, 4),  # 192 of 216 places
        (32, 4096, 1, 3),
        (2, 65536, 1, 47),  # 46 splits would have 12 blocks each, as 45 have
        (1, 128, 0, 1),  # one block
    ],
)
def test_the_count_of_splits_is_that_of_the_open_kernel(planes: int, keys: int, release: int, expected: int) -> None:
    assert split_count(planes, 108, ceil_div(keys, 128), release) == expected


@pytest.mark.parametrize(
    ("planes", "blocks", "expected"),
    [
        (4, 293, 29),  # 116 of 132 places; 28 splits take 0.848
        (4, 19, 17),  # as 19 splits are the most, 0.85 of 76 places are enough
        (4, 4, 1),  # so few blocks stay whole
        (106, 293, 1),  # 0.8 of the places are taken
    ],
)
def test_the_count_of_splits_on_h100_is_that_of_flash_attention_3(planes: int, blocks: int, expected: int) -> None:
    assert split_count_fa3(planes, 132, blocks) == expected


def test_splits_without_keys_are_not_launched() -> None:
    """Ten blocks in eight splits: two each, so that five have some."""
    assert used_splits(10, 8) == 5
    with pytest.raises(UserError, match="num_splits=5 cuts them in the same way"):
        find_kernel("decode_split").problem({"seqlen_kv": 1280, "num_splits": 8})


@pytest.mark.parametrize(("heads_q", "expected"), [("1", 1), ("3", 3), ("4", 2)])
def test_a_check_chooses_key_heads_that_suit_the_query_heads_given(heads_q: str, expected: int) -> None:
    sizes = check_sizes("decode_split", {"heads_q": heads_q})
    assert find_kernel("decode_split").problem(sizes).heads_kv == expected


WHOLE = {"batch": 256, "heads_q": 16, "heads_kv": 2, "seqlen_kv": 256}


@pytest.mark.parametrize(("gpu", "name"), [("a100", "attention_fa2"), ("h100", "attention")])
def test_whole_keys_are_one_launch_of_attention_with_packed_heads(gpu: str, name: str) -> None:
    ((kernel, params),) = launches(gpu, **WHOLE, append=0)
    assert kernel == name
    assert (params["heads_q"], params["heads_kv"], params["seqlen_q"]) == (2, 2, 8)


@pytest.mark.parametrize(
    ("gpu", "changes"), [("a100", {}), ("b200", {"implementation": "fa2"}), ("b200", {"head_dim": 256})]
)
def test_the_split_kernel_goes_through_whole_keys_where_one_is_appended(gpu: str, changes: dict[str, Any]) -> None:
    assert [kernel for kernel, _ in launches(gpu, **WHOLE, **changes)] == ["decode_whole"]


@pytest.mark.parametrize("append", [0, 1])
def test_b200_has_a_kernel_of_its_own_for_whole_keys(append: int) -> None:
    ((kernel, params),) = launches("b200", **WHOLE, append=append)
    assert (kernel, params["heads_q"]) == ("decode_whole_fa4", 16)


@pytest.mark.parametrize(
    ("tiles", "blocks", "expected"), [(64, 32, 2), (4, 512, 37), (1, 512, 128), (1, 9, 9), (200, 32, 1), (4, 4, 1)]
)
def test_the_count_of_splits_on_b200_is_that_of_flash_attention_4(tiles: int, blocks: int, expected: int) -> None:
    assert split_count_fa4(tiles, 148, blocks) == expected


@pytest.mark.parametrize(
    ("sizes", "kernel"),
    [
        ((1, 4, 4096), "decode_split"),  # both kernels cut 32 blocks into 32
        ((1, 8, 4096), "decode_split_fa4"),  # 16 splits of two blocks; the code for A100 has 256 CTAs of one
        ((1, 1, 32768), "decode_split_fa4"),  # 128 splits of two blocks in both
        ((1, 1, 512), "decode_split"),  # FlashAttention 4 leaves four blocks whole
        ((256, 4, 128), "decode_whole"),  # one block
        ((16, 4, 4096), "decode_split_fa4"),
    ],
)
def test_b200_takes_the_code_for_a100_where_a_cta_has_one_block(sizes: tuple[int, int, int], kernel: str) -> None:
    """By cycles of both, docs/explanation/decode.md."""
    names = ("batch", "heads_kv", "seqlen_kv")
    assert launches("b200", heads_q=32, **dict(zip(names, sizes, strict=True)))[0][0] == kernel
    assert "fa4" in launches("b200", heads_q=32, implementation="fa4", **dict(zip(names, sizes, strict=True)))[0][0]


@pytest.mark.parametrize(("gpu", "head_dim"), [("h100", 128), ("b200", 256)])
def test_flash_attention_4_is_refused_where_it_does_not_decode(gpu: str, head_dim: int) -> None:
    with pytest.raises(UserError, match="FlashAttention 4 decodes on B200, head sizes 64 and 128; got"):
        launches(gpu, **WHOLE, head_dim=head_dim, implementation="fa4")


def test_keys_and_values_of_b200_fill_what_queries_and_sums_leave_of_shared_memory() -> None:
    """224 KB: O of a part in fp32 lies where Q of 128 elements was, beside Q of 64."""
    kernel, gpu = find_kernel("decode_split_fa4"), machine("b200")
    stages = [kernel.candidates(gpu, kernel.check({"head_dim": size}), "simt")[0].stages for size in (64, 128)]
    assert stages == [11, 5]


def test_the_split_kernel_writes_o_itself_where_keys_are_whole() -> None:
    kernel, gpu = find_kernel("decode_whole"), machine("a100")
    program = pipeline.tile_program("decode_whole", gpu, kernel.check(SMALL))
    outputs = [(tensor.name, tensor.dtype) for tensor in program.tensors if tensor.role == "output"]
    assert outputs == [("O", "fp16")]


def test_keys_in_8_bits_are_decoded_on_h100_and_added_up_in_16() -> None:
    names = [(kernel, params["dtype"]) for kernel, params in launches("h100", **SMALL, dtype="fp8_kv", num_splits=2)]
    assert names == [("decode_split_fa3", "fp8_e4m3"), ("decode_combine", "bf16")]
    with pytest.raises(UserError, match="decoding on a100 takes fp16, bf16; got 'fp8_kv'"):
        launches("a100", **SMALL, dtype="fp8_kv")


def test_split_keys_are_two_launches_and_the_second_finds_the_parts_in_l2() -> None:
    steps = composites.questions(request("decode_attention", "a100", l2_state="cold", texts=SMALL | {"num_splits": 2}))
    assert [(step.asked.kernel, step.asked.l2_state) for step in steps] == [
        ("decode_split", "cold"), ("decode_combine", "warm"),
    ]  # fmt: skip


def test_the_references_of_both_launches_make_that_of_the_whole() -> None:
    inputs, split = parts(PROBLEM, 0)
    _, expected = whole(PROBLEM, 0)
    logs = split["LSE_partial"][..., None]
    outs = split["O_partial"].reshape(*split["LSE_partial"].shape, PROBLEM.head_dim)
    weights = np.exp2(logs - logs.max(axis=2, keepdims=True))
    assert np.allclose((weights * outs).sum(axis=2) / weights.sum(axis=2), expected["O"])
    assert inputs["Q"].shape == (4, 2, 128)


@pytest.mark.parametrize(
    ("gpu", "changes"),
    [
        ("a100", {"num_splits": 3}),
        ("a100", {"num_splits": 1, "dtype": "bf16"}),
        ("a100", {"num_splits": 1, "dtype": "bf16", "append": 0}),
        ("a100", {"num_splits": 2, "head_dim": 256, "seqlen_kv": 65}),
        ("h100", {"num_splits": 2}),
        ("h100", {"num_splits": 2, "head_dim": 64, "dtype": "bf16"}),
        pytest.param("h100", {"num_splits": 2, "head_dim": 256, "seqlen_kv": 161}, marks=pytest.mark.slow),
        ("h200", {"num_splits": 2, "dtype": "fp8_kv", "seqlen_kv": 333}),
        ("b200", {"num_splits": 3, "heads_q": 2, "heads_kv": 2, "implementation": "fa4"}),
        ("b200", {"seqlen_kv": 257, "implementation": "fa4"}),
        pytest.param(
            "b200", {"num_splits": 2, "head_dim": 64, "dtype": "bf16", "seqlen_kv": 1030}, marks=pytest.mark.slow
        ),
        pytest.param("b200", {"num_splits": 2, "head_dim": 256, "seqlen_kv": 65}, marks=pytest.mark.slow),
    ],
)
def test_the_chain_is_right(gpu: str, changes: dict[str, Any]) -> None:
    row = api.check("decode_attention", gpu, **SMALL | changes)
    assert row["passed"]
    assert row["outputs"][0]["tensor"].endswith(".O")


@pytest.mark.parametrize("splits", [1, 2, 7, 16, 21, 37])
def test_any_count_of_splits_adds_up(splits: int) -> None:
    """Loops of 16 logarithms and of four parts, and what is left of them."""
    row = api.check("decode_combine", "a100", batch=1, heads_q=5, num_splits=splits)
    assert row["passed"]


def test_a_part_that_is_not_weighted_is_seen() -> None:
    kernel, gpu = find_kernel("decode_combine"), machine("a100")
    params = kernel.check({"batch": 1, "heads_q": 4, "num_splits": 3})
    program = pipeline.compile_kernel("decode_combine", gpu, params)
    inputs, expected = kernel.reference(params)
    inputs["LSE_partial"] = np.zeros_like(inputs["LSE_partial"])
    report = interp.check(program, gpu, inputs, expected)
    assert not report.ok


@pytest.mark.parametrize(("gpu", "name"), [
    ("a100", "decode_split"), ("h100", "decode_split_fa3"),
    pytest.param("b200", "decode_split_fa4", marks=pytest.mark.slow),
])  # fmt: skip
def test_more_query_heads_than_rows_of_a_tile_are_split_too(gpu: str, name: str) -> None:
    """130 query heads: three tiles of 64 rows, two of 128 (H100 and B200); each goes through both parts of the keys."""
    many = {"batch": 1, "heads_q": 130, "heads_kv": 1, "seqlen_kv": 200, "num_splits": 2}
    row = api.check(name, gpu, **many)
    assert (row["passed"], row["hazards"]) == (True, [])
    assert len(pipeline.tile_program(name, machine(gpu), find_kernel(name).check(many)).work.items) == {
        "a100": 6, "h100": 4, "b200": 4,
    }[gpu]  # fmt: skip


def test_tiles_of_query_heads_count_where_splits_are_chosen() -> None:
    few, many = (launches("a100", batch=2, heads_q=heads, heads_kv=1, seqlen_kv=65536) for heads in (64, 192))
    assert few[0][1]["num_splits"] > many[0][1]["num_splits"] > 1


def test_more_query_heads_than_rows_go_through_all_keys() -> None:
    asked = request("decode_attention", "a100", texts={"batch": 1, "heads_q": 128, "heads_kv": 1, "num_splits": 1})
    assert [step.asked.kernel for step in composites.questions(asked)] == ["decode_whole"]


def test_a_published_row_of_whole_keys_appends_none() -> None:
    path = Path(composites.__file__).parent / "cases" / "decode.csv"
    asked = request_of(next(case for case in read_cases(path) if case.case_id == "fd-001"))
    assert [step.asked.kernel for step in composites.questions(asked)] == ["attention_fa2"]


def test_a_published_row_is_asked_as_its_script_ran() -> None:
    path = Path(composites.__file__).parent / "cases" / "decode.csv"
    case = next(case for case in read_cases(path) if case.case_id == "fd-013")
    asked = request_of(dataclasses.replace(case, includes_launch=False))
    assert asked.includes_launch  # its script times whole replays of a graph,
    assert asked.extra_launches == 2  # before each of which PyTorch launches two kernels of one element
    assert [step.asked.kernel for step in composites.questions(asked)] == ["decode_split", "decode_combine"]
    assert composites.questions(asked)[0].asked.params["num_splits"] == 3


def test_the_list_of_kernels_names_the_most_splits() -> None:
    splits = next(row for row in catalog.kernel_row("decode_attention")["parameters"] if row["name"] == "num_splits")
    assert splits["allowed"] == "0 to 128"
    with pytest.raises(UserError, match="must be 128 at most, got 129"):
        find_entry("decode_attention").check({"num_splits": 129})
