"""Do the commands run each mode, lay the FIBER features over a plain machine, and say what is missing?"""

import json
from pathlib import Path

import pytest

import heddle as package
from heddle.errors import UserError
from heddle.lang import Builder, kernel
from heddle.machine import machine, with_fiber

from .conftest import Command

SMALL = ("--set", "m=200", "--set", "n=72", "--set", "k=136")


ONE_TILE = {
    "cuda-native": ("--set", "tile_m=128", "--set", "tile_n=64", "--set", "cluster=1", "--set", "split_k=1"),
    "fiber": ("--set", "tile_n=64", "--set", "groups=1"),
}


@pytest.mark.parametrize("mode", ONE_TILE)
def test_a_mode_of_fiber_lays_the_features_over_a_plain_machine(heddle: Command, result_cache: Path, mode: str) -> None:
    ended = heddle("check", "gemm", "--gpu", "h100", "--mode", mode, *SMALL, *ONE_TILE[mode], "--json", "-")
    row = json.loads(ended.out)
    assert (ended.code, row["passed"], row["gpu"], row["mode"]) == (0, True, "h100+fiber", mode)


def test_the_features_of_a_machine_with_fiber_are_kept() -> None:
    slow = machine("h100+fiber").replace(set_fiber_num_cycles=64)
    assert with_fiber(slow) is slow


def test_features_laid_over_a_machine_are_those_of_the_preset() -> None:
    assert with_fiber(machine("h100")) == machine("h100+fiber")


def test_a_missing_mode_says_what_there_is(heddle: Command) -> None:
    ended = heddle("run", "attention_fa2", "--gpu", "h100", "--mode", "fiber")
    assert ended.code == 2
    assert "attention_fa2 has no kernel of mode fiber for h100 (sm_90)" in ended.err
    assert "h100 runs it in the modes simt, cuda-native; mode fiber runs on: none" in ended.err


def test_a_shape_that_the_native_kernel_lacks_is_bad_input(heddle: Command, result_cache: Path) -> None:
    ended = heddle("run", "gemm", "--gpu", "h100", "--mode", "fiber", "--set", "dtype=fp8_e4m3")
    assert (ended.code, "multiplies fp16, bf16; got 'fp8_e4m3'" in ended.err) == (2, True)


def test_a_field_of_the_native_configuration_can_be_pinned(heddle: Command, result_cache: Path) -> None:
    ended = heddle("run", "gemm", "--gpu", "h100", "--mode", "fiber", *SMALL, *ONE_TILE["fiber"], "--json", "-")
    row = json.loads(ended.out)
    assert (ended.code, row["mode"], row["params"]["config"].split()[-1]) == (0, "fiber", "g1")


def test_a_field_of_the_other_modes_is_unknown_in_mode_fiber(heddle: Command) -> None:
    ended = heddle("run", "gemm", "--gpu", "h100", "--mode", "fiber", "--set", "split_k=2")
    assert (ended.code, "unknown parameter of gemm 'split_k'" in ended.err) == (2, True)


def test_the_list_of_kernels_has_the_modes_by_machine(heddle: Command) -> None:
    row = json.loads(heddle("kernels", "gemm", "--json", "-").out)
    assert row["modes_on"]["h100"] == ["simt", "cuda-native", "fiber"]
    fields = [field["name"] for field in row["native_tile"]["sm_90"]]
    assert fields == ["tile_n", "stages", "groups", "cluster", "fiber_threads"]


def test_a_kernel_function_of_one_mode_is_not_compiled_in_another() -> None:
    @kernel
    def nothing(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        with k.role("only", warps=1, registers=32):
            pass

    with pytest.raises(UserError, match="written for mode simt, not fiber"):
        package.compile(nothing, "h100", mode="fiber")
