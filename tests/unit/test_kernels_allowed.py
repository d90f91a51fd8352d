"""Are the values that `heddle kernels` shows those that the kernels accept?"""

import re

import pytest

from heddle import pipeline
from heddle.errors import UnsupportedError, UserError
from heddle.kernels.registry import find_kernel
from heddle.study import runs
from heddle.study.requests import request

GEMM = {"m": 256, "n": 256, "k": 512, "split_k": 1, "stages": 2}
ATTENTION = {"batch": 1, "heads_q": 1, "seqlen_q": 256}
MULTISTAGE = {**GEMM, "warps": "2x2", "tile_m": 64, "tile_n": 64, "tile_k": 64}
WIDE = {**GEMM, "cluster": 1, "tile_m": 128, "tile_n": 64, "tile_k": 64}
PINGPONG = {**WIDE, "schedule": "pingpong", "tile_m": 64}

Values = tuple[int | str, ...]
# kernel, GPU, what else is given, field, accepted, refused, as the table says it
STATED: list[tuple[str, str, dict[str, int | str], str, Values, Values, str]] = [
    ("gemm", "a100", MULTISTAGE, "tile_k", (32, 64, 128, 256), (8, 16, 48, 96, 192), "multistage: 32, 64, 128, 256,"),
    ("gemm", "h100", PINGPONG, "tile_k", (16, 48, 64), (8, 24, 80, 128), "else multiples of 16 up to 64"),
    ("gemm", "b200", WIDE, "tile_k", (16, 48, 64), (8, 24, 80, 128), "else multiples of 16 up to 64"),
    ("gemm", "h100", {**PINGPONG, "dtype": "fp8_e4m3"}, "tile_k", (32, 128), (16, 48, 160), "in fp8 of 32 up to 128"),
    ("gemm", "a100", MULTISTAGE, "tile_m", (32, 64, 96), (16, 48), "multistage: multiples of 16 for each row of warps"),
    ("gemm", "h100", PINGPONG, "tile_m", (64, 128), (32, 96), "pingpong: of 64"),
    ("gemm", "b200", WIDE, "tile_m", (128,), (64, 256), "tcgen05: 128"),
    ("gemm", "a100", MULTISTAGE, "tile_n", (32, 96), (16, 48), "multistage: multiples of 16 for each column of warps"),
    ("gemm", "h100", PINGPONG, "tile_n", (8, 56, 80, 256), (4, 72, 264), "sm_90: of 8, beyond one store (64 in fp16)"),
    ("gemm", "b200", WIDE, "tile_n", (16, 80, 256), (8, 72, 272), "sm_100: of 16, up to 256"),
    ("gemm", "a100", MULTISTAGE, "stages", (2, 3), (1,), "2 or more"),
    ("gemm", "a100", MULTISTAGE, "cluster", (1,), (2,), "1; on sm_90 and sm_100 also 2"),
    ("gemm", "h100", PINGPONG, "cluster", (1, 2), (4,), "1; on sm_90 and sm_100 also 2"),
    ("gemm", "h100", PINGPONG, "split_k", (1, 8), (9,), "1 to k / tile_k"),
    ("attention", "h100", ATTENTION, "causal", (0, 1), (2,), "0, 1"),
    ("attention", "h100", ATTENTION, "head_dim", (64, 128, 256), (32, 96), "64, 128, 256"),
    ("attention", "a100", ATTENTION, "stages", (1,), (2,), "fa2: 1"),
    ("attention", "h100", ATTENTION, "stages", (1, 2), (0, 3), "fa3: 1 or more"),
    ("attention", "b200", ATTENTION, "stages", (2, 3), (1,), "fa4: 2 or more"),
    ("attention", "a100", ATTENTION, "tile_m", (64, 128), (96,), "fa2: multiples of 16 for each of its groups"),
    ("attention", "h100", ATTENTION, "tile_m", (128,), (64, 192), "fa3: 64 for each of its groups"),
    ("attention", "b200", ATTENTION, "tile_m", (256,), (128,), "fa4: 256, at head size 256 128"),
    ("attention", "a100", ATTENTION, "tile_n", (16, 48), (8, 72), "fa2: multiples of 16"),
    ("attention", "h100", ATTENTION, "tile_n", (64, 80), (48, 72), "fa3: of 16, in fp8 of 32, 64 to 256"),
    ("attention", "b200", ATTENTION, "tile_n", (128,), (64,), "fa4: 128, at head size 256 64"),
    ("attention", "a100", ATTENTION, "cluster", (1,), (2,), "fa3: 1, 2, causal 1; else 1"),
    ("attention", "h100", ATTENTION, "cluster", (1, 2), (4,), "fa3: 1, 2, causal 1; else 1"),
    ("attention", "h100", {**ATTENTION, "causal": 1}, "cluster", (1,), (2,), "fa3: 1, 2, causal 1; else 1"),
    ("attention", "b200", {**ATTENTION, "exp_share": 2}, "exp_period", (2, 32), (3, 34), "even, 2 to 32"),
]


def accepts(kernel: str, gpu: str, given: dict[str, int | str]) -> bool:
    """Tell whether the values make a program."""
    try:
        asked = request(kernel, gpu, texts={name: str(value) for name, value in given.items()})
        for config in runs.candidates(asked):
            pipeline.tile_program(kernel, asked.machine, asked.params, config)
            return True
    except (UserError, UnsupportedError):
        pass
    return False


@pytest.mark.parametrize(("kernel", "gpu", "others", "field", "accepted", "refused", "stated"), STATED)
def test_what_is_stated_is_accepted_and_nothing_else(
    kernel: str, gpu: str, others: dict[str, int | str], field: str, accepted: Values, refused: Values, stated: str
) -> None:
    found = find_kernel(kernel)
    allowed = {parameter.name: parameter.allowed for parameter in (*found.parameters, *found.tile)}
    assert stated in allowed[field]
    assert [value for value in accepted if not accepts(kernel, gpu, {**others, field: value})] == []
    assert [value for value in refused if accepts(kernel, gpu, {**others, field: value})] == []


@pytest.mark.parametrize(("kernel", "gpu"), [("gemm", "a100"), ("attention", "h100"), ("attention_fa2", "a100")])
def test_only_what_is_listed_can_be_given(kernel: str, gpu: str) -> None:
    found = find_kernel(kernel)
    with pytest.raises(UserError) as refused:
        request(kernel, gpu, texts={"nothing": "1"})
    listed = {parameter.name for parameter in (*found.parameters, *found.tile)}
    assert set(re.findall(r"\w+", str(refused.value).partition("allowed: ")[2].partition("\n")[0])) == listed


def test_a_tile_k_that_lanes_cannot_copy_is_refused_by_that_rule() -> None:
    """Not by a rule that only the last of the candidates breaks."""
    with pytest.raises(UserError, match="one of 32, 64, 128, 256; got 48"):
        runs.run(request("gemm", "a100", texts={"m": "512", "n": "512", "k": "1024", "tile_k": "48"}))
