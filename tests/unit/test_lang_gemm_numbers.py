"""Does every GEMM kernel compute the right numbers, without deadlock, in every schedule and at odd sizes?"""

from __future__ import annotations

import numpy as np
import pytest
from lang_runner import Deadlock, Runner

from heddle.ir.tile_text import parse_program, print_program
from heddle.kernels.gemm.shape import GemmConfig
from heddle.kernels.registry import KERNELS
from heddle.machine import machine

GEMM = KERNELS["gemm"]
TOLERANCE = {"fp16": 1e-3, "bf16": 1e-2, "fp8_e4m3": 5e-2}


def config(schedule: str, tile: tuple[int, int, int], stages: int = 3, **more: object) -> GemmConfig:
    """A configuration in short."""
    return GemmConfig(
        schedule=schedule,
        tile_m=tile[0],
        tile_n=tile[1],
        tile_k=tile[2],
        stages=stages,
        **more,  # type: ignore[arg-type]
    )


CASES = {
    "a100": ("a100", (100, 136, 200), "fp16", config("multistage", (64, 64, 32), warps=(2, 2))),
    "a100-4-byte-lanes": ("a100", (33, 70, 202), "bf16", config("multistage", (64, 64, 32), warps=(2, 2))),
    "a100-one-step": ("a100", (33, 70, 16), "fp16", config("multistage", (64, 64, 32), warps=(2, 2))),
    "a100-split": ("a100", (40, 72, 512), "fp16", config("multistage", (16, 64, 64), split_k=2, warps=(1, 4))),
    "h100-cooperative": ("h100", (300, 264, 200), "fp16", config("cooperative", (128, 128, 64))),
    "h100-one-step": ("h100", (300, 264, 64), "bf16", config("cooperative", (128, 128, 64))),
    "h100-cluster": ("h100", (600, 264, 328), "bf16", config("cooperative", (128, 64, 64), cluster=2)),
    "h100-cluster-along-n": (
        "h100",
        (300, 264, 328),
        "bf16",
        config("cooperative", (128, 64, 64), cluster=2, cluster_side="n"),
    ),
    "h100-pingpong-along-n": (
        "h100",
        (300, 264, 328),
        "fp16",
        config("pingpong", (64, 64, 64), cluster=2, cluster_side="n"),
    ),
    "h100-split-along-n": (
        "h100",
        (130, 264, 1000),
        "fp16",
        config("cooperative", (128, 64, 64), cluster=2, cluster_side="n", split_k=3),
    ),
    "h100-odd-output": ("h100", (130, 101, 128), "fp16", config("cooperative", (128, 64, 64))),
    "h100-split": ("h100", (200, 136, 1000), "fp16", config("cooperative", (128, 64, 64), split_k=3, cluster=2)),
    "h100-pingpong": ("h100", (700, 264, 328), "fp16", config("pingpong", (64, 64, 64))),
    "h100-pingpong-cluster": ("h100", (700, 264, 328), "fp16", config("pingpong", (64, 128, 64), cluster=2)),
    "h100-split-one-step": ("h100", (200, 136, 320), "fp16", config("cooperative", (128, 64, 64), split_k=3)),
    "h100-pingpong-split-one-step": ("h100", (70, 136, 320), "fp16", config("pingpong", (64, 64, 64), split_k=3)),
    "h100-pingpong-split": ("h100", (1, 264, 1024), "bf16", config("pingpong", (64, 64, 64), split_k=4)),
    "h100-fp8": ("h100", (200, 144, 400), "fp8_e4m3", config("cooperative", (128, 64, 128))),
    "b200": ("b200", (300, 264, 328), "bf16", config("tcgen05", (128, 64, 64))),
    "b200-pair": ("b200", (600, 264, 328), "bf16", config("tcgen05", (128, 128, 64), cluster=2)),
    "b200-split": ("b200", (130, 264, 1024), "fp16", config("tcgen05", (128, 128, 64), split_k=4)),
    "b200-pair-split": ("b200", (300, 264, 1024), "fp16", config("tcgen05", (128, 64, 64), split_k=2, cluster=2)),
    "b200-odd-output": ("b200", (130, 101, 128), "fp16", config("tcgen05", (128, 64, 64))),
    "b200-fp8": ("b200", (130, 144, 400), "fp8_e4m3", config("tcgen05", (128, 64, 128))),
}


def small_chip(gpu: str) -> object:
    """A machine with few SMs, so that persistent clusters get several items."""
    return machine(gpu).replace(sms=4)


@pytest.mark.parametrize("name", CASES)
def test_numbers_agree_with_numpy(name: str) -> None:
    gpu, (m, n, k), dtype, chosen = CASES[name]
    params = {"m": m, "n": n, "k": k, "dtype": dtype}
    inputs, expected = GEMM.reference(params, 7)
    runner = Runner(GEMM.build(small_chip(gpu), params, chosen), inputs)
    runner.run()
    difference = np.linalg.norm(runner.tensors["C"].astype(float) - expected["C"])
    assert difference / np.linalg.norm(expected["C"]) < TOLERANCE[dtype]
    assert (runner.written["C"] == 1).all()  # every element is stored once


@pytest.mark.parametrize("removed", ["arrive barrier=empty", "expect barrier=full", "wait barrier=empty"])
def test_a_removed_barrier_operation_does_not_go_unnoticed(removed: str) -> None:
    params = {"m": 512, "n": 128, "k": 640, "dtype": "fp16"}
    program = GEMM.build(small_chip("h100"), params, config("cooperative", (128, 128, 64)))
    lines = [line for line in print_program(program).splitlines() if not line.strip().startswith(removed)]
    inputs, expected = GEMM.reference(params, 7)
    runner = Runner(parse_program("\n".join(lines)), inputs)
    try:
        runner.run()
    except (Deadlock, AssertionError):
        return
    assert not np.allclose(runner.tensors["C"].astype(float), expected["C"], atol=0.1)
