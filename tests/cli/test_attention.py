"""Does the command line run and check attention, and refuse what makes no sense?"""

import json

import pytest

from .conftest import Command


def test_a_run_explains_every_cycle(heddle: Command) -> None:
    sizes = ("--set", "batch=1", "--set", "heads_q=2", "--set", "seqlen_q=700", "--set", "causal=1")
    ended = heddle("run", "attention", "--gpu", "h100", *sizes, "--json", "-")
    row = json.loads(ended.out)
    assert ended.code == 0
    assert sum(row["stalls"].values()) == pytest.approx(1.0)
    assert 0 < row["tensor_utilization"] <= row["pipes"]["tensor"] <= 1


def test_a_check_takes_small_sizes_of_its_own(heddle: Command) -> None:
    ended = heddle("check", "attention", "--gpu", "h100", "--set", "seqlen_q=200", "--set", "head_dim=64")
    assert (ended.code, "passed" in ended.out, "hazards: none" in ended.out) == (0, True, True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("causal=2", "must be one of 0, 1"),
        ("head_dim=96", "pad others"),
        ("dtype=int8", "unknown value of 'dtype': 'int8'; allowed: bf16, fp16, fp8_e4m3"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(heddle: Command, setting: str, message: str) -> None:
    ended = heddle("check", "attention", "--gpu", "h100", "--set", setting)
    assert (ended.code, message in ended.err) == (2, True)


def test_a_type_that_the_kernel_of_a_gpu_has_not_is_refused(heddle: Command) -> None:
    ended = heddle("check", "attention", "--gpu", "a100", "--set", "dtype=fp8_e4m3")
    assert (ended.code, "fa2 on a100 takes fp16, bf16; got 'fp8_e4m3'" in ended.err) == (2, True)
