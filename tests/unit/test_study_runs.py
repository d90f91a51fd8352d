"""Does a run simulate no more than its question needs?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heddle import pipeline
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.features import STEPS
from heddle.study.runs import Request, request, run

SIZES = {"m": "2048", "n": "2048", "k": "2048"}
FEW_TILES = {"m": "128", "n": "64", "k": "256"}


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> list[float]:
    """Replace the simulation by one that answers at once; return the clocks that were asked for."""
    clocks: list[float] = []

    def answer(kernel: str, gpu: Any, params: Mapping[str, Any], config: Any, *, clock_mhz: float, **_: Any) -> Any:
        clocks.append(clock_mhz)
        return {"cycles": 40_000 + config.tile_n, "tensor_utilization": 0.8, "time_us": 25.0, "tflops": 700.0,
                "clock_mhz": clock_mhz, "provenance": {}}  # fmt: skip

    monkeypatch.setattr(pipeline, "run_once", answer)
    return clocks


def test_a_repeated_question_simulates_nothing(simulated: list[float]) -> None:
    first = run(request("gemm", "h100", texts=SIZES))
    count = len(simulated)
    assert (run(request("gemm", "h100", texts=SIZES)), len(simulated)) == (first, count)


def test_another_clock_model_compares_no_tiles_again(simulated: list[float]) -> None:
    gpu = machine("h100")
    run(request("gemm", gpu, texts=SIZES))
    count = len(simulated)
    run(request("gemm", gpu.replace(clock_sustained_mhz=gpu.clock_sustained_mhz + 20), texts=SIZES))
    assert len(simulated) - count <= 3  # rounds of settling


def test_another_machine_is_simulated(simulated: list[float]) -> None:
    gpu = machine("h100")
    run(request("gemm", gpu, clock_mhz=1500, texts=SIZES))
    count = len(simulated)
    run(request("gemm", gpu.replace(l2_port_bytes_per_cycle=60.0), clock_mhz=1500, texts=SIZES))
    assert len(simulated) > count


def at_step(name: str, kernel: str, gpu: str) -> Request:
    [step] = [step for step in STEPS if step.name == name]
    return request(kernel, step.machine(machine(gpu)), mode="fiber", clock_mhz=1500, texts=FEW_TILES)


def test_a_step_whose_program_is_that_of_all_of_fiber_is_not_simulated_again(simulated: list[float]) -> None:
    whole = run(at_step("+DP +FS +RS", "gemm", "h100"))
    count = len(simulated)
    without = run(at_step("+DP +FS", "gemm", "h100"))
    assert (len(simulated), without["cycles"]) == (count, whole["cycles"])
    assert (whole["gpu"], without["gpu"]) == ("h100+fiber", "h100+fs")


def test_a_step_with_another_kernel_is_simulated(simulated: list[float]) -> None:
    run(at_step("+DP", "gemm", "h100"))
    count = len(simulated)
    run(at_step("+DP +FS +RS", "gemm", "h100"))
    assert len(simulated) > count


def test_a_fixed_configuration_is_not_chosen_again(simulated: list[float]) -> None:
    asked = request("gemm", "h100", clock_mhz=1500, texts=SIZES)
    config = find_kernel("gemm").candidates(asked.machine, asked.params)[-1]
    run(dataclasses.replace(asked, config=config))
    assert simulated == [1500.0]


def test_the_machine_hash_is_that_of_the_machine_asked_for(simulated: list[float]) -> None:
    gpu = machine("h100")
    one = run(request("gemm", gpu, clock_mhz=1500, texts=SIZES))
    other = run(request("gemm", gpu.replace(clock_sustained_mhz=1400.0), clock_mhz=1500, texts=SIZES))
    assert one["provenance"]["machine_hash"] != other["provenance"]["machine_hash"]


def test_a_profile_of_flash_attention_4_has_the_papers_synchronisation(simulated: list[float]) -> None:
    attention = {"batch": "1", "heads_q": "1", "seqlen_q": "256"}
    asked = request("attention", "b200", clock_mhz=1500, profile=True, texts=attention)
    assert run(asked)["paper"]["synchronisation"]["share"] == 0.26


def test_a_profile_of_another_kernel_has_no_figure_of_the_paper(simulated: list[float]) -> None:
    assert run(request("gemm", "b200", clock_mhz=1500, profile=True, texts=SIZES))["paper"] == {}
