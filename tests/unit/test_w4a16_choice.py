"""Is the fastest of today's W4A16 kernels taken where the user leaves it open?"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.kernels.w4a16.choice import build, candidates, implementation
from heddle.kernels.w4a16.shape import W4Config, W4Problem
from heddle.machine import machine
from heddle.study.choose import SIMULATED, Choice
from heddle.study.requests import request
from heddle.study.runs import tile_choice

WIDE = {"n": 28672, "k": 1024}
NARROW = {"m": 128, "n": 1024, "k": 2048}


def problem(**params: Any) -> W4Problem:
    """Return the checked problem."""
    found = find_kernel("w4a16").problem(params)
    assert isinstance(found, W4Problem)
    return found


def compared(gpu: str, **params: Any) -> list[str]:
    """Return the implementations whose tiles are compared."""
    asked, device = problem(**params), machine(gpu)
    found = candidates(asked, device)
    assert len(found) <= SIMULATED
    return sorted({implementation(asked, config) for config in found})


@functools.cache
def choice(gpu: str, **params: Any) -> Choice:
    """Return what is chosen by simulation."""
    return tile_choice(request("w4a16", gpu, texts=params), lambda done, total, what: None)


@pytest.mark.parametrize(
    ("gpu", "params", "kernels"),
    [
        ("a100", {}, ["mma.sync"]),
        ("h100", {}, ["wgmma"]),
        ("b200", {}, ["tcgen05"]),
        ("b200", {"group": 64}, ["mma.sync"]),
        ("h100", {"k": 4032, "scheme": "aqlm_2x8"}, ["mma.sync"]),
        ("b200", {"m": 1, "scheme": "aqlm_2x8"}, ["gemv"]),
        ("b200", {"m": 2, "scheme": "aqlm_2x8"}, ["mma.sync", "tcgen05"]),
        ("b200", {"implementation": "mma.sync"}, ["mma.sync"]),
        ("b200", {"m": 32, **WIDE}, ["mma.sync", "tcgen05"]),
        ("b200", {"m": 64, **WIDE}, ["tcgen05"]),
        ("h100", {"m": 64, **WIDE}, ["mma.sync", "wgmma"]),
        ("b200", NARROW, ["mma.sync", "tcgen05"]),
    ],
    ids=str,
)
def test_kernels_are_compared_unless_one_is_far_behind(gpu: str, params: dict[str, Any], kernels: list[str]) -> None:
    assert compared(gpu, **params) == kernels


def test_simulation_chooses_between_kernels() -> None:
    found = choice("b200", m=64, n=512, k=256, tile_n=128)
    assert {label.split()[-1] for label in found.cycles} == {"mma.sync", "tcgen05"}
    assert found.cycles[found.config.label()] == min(found.cycles.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "params", "taken"),
    [
        ("b200", {"m": 32, **WIDE}, "tcgen05"),
        ("b200", {"m": 64, **WIDE}, "tcgen05"),
        ("h100", {"m": 64, **WIDE}, "wgmma"),
        ("b200", NARROW, "mma.sync"),
        ("b200", {"m": 16, "n": 4096, "k": 4096}, "mma.sync"),
    ],
    ids=str,
)
def test_the_faster_kernel_is_taken(gpu: str, params: dict[str, Any], taken: str) -> None:
    assert choice(gpu, **params).config.implementation == taken


@pytest.mark.parametrize(
    ("gpu", "params"),
    [("h100", {"m": 128, "n": 72, "k": 128}), ("h200", {"m": 200, "n": 256, "k": 128, "scheme": "aqlm_2x8"})],
    ids=str,
)
def test_what_only_mma_sync_can_run_takes_it(gpu: str, params: dict[str, Any]) -> None:
    assert compared(gpu, **params) == ["mma.sync"]
    program = pipeline.tile_program("w4a16", machine(gpu), params)
    assert program.architecture == "sm_80"


def test_fewer_than_two_turns_by_wgmma_are_refused_by_name() -> None:
    asked = problem(k=128, implementation="wgmma")
    config = W4Config(tile_m=64, tile_n=128, stages=2, warps=8)
    with pytest.raises(UserError, match="steps of 128, 256 or more; k = 128"):
        build(asked, config, machine("h100"), {})
