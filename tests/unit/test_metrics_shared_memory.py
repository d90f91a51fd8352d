"""Is shared memory counted as busy for as long as the engine charges its accesses?"""

from __future__ import annotations

import pytest

from heddle import pipeline
from heddle.ir.warp import WarpProgram
from heddle.machine import machine
from heddle.machine.spec import Machine
from heddle.metrics.shared_memory import busy_cycles
from heddle.metrics.speed_of_light import throughputs
from heddle.sim.result import SimResult

RUNS = [("a100", "simt"), ("h100", "simt"), ("b200", "simt"), ("a100", "fiber"), ("h100", "fiber"), ("b200", "fiber")]
PARAMS = {"m": 256, "n": 256, "k": 256, "dtype": "fp16", "epilogue": "none"}


def ran(gpu: str, mode: str) -> tuple[SimResult, WarpProgram, Machine]:
    """A small GEMM on the whole chip."""
    target = machine(gpu if mode == "simt" else f"{gpu}+fiber")
    program = pipeline.compile_kernel("gemm", target, PARAMS, mode=mode)
    return pipeline.simulate_program(program, target, clock_mhz=1000.0, simulation="chip"), program, target


@pytest.mark.parametrize(("gpu", "mode"), RUNS)
def test_with_copies_in_full_and_without_conflicts_it_is_busy_for_all_its_bytes(gpu: str, mode: str) -> None:
    result, program, target = ran(gpu, mode)
    plain = target.replace(shared_async_write_share=1.0, shared_conflict_cycles_per_way=0)
    assert busy_cycles(result, program, plain) * target.shared_bytes_per_cycle == result.shared_bytes


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_half_of_what_lands_fits_idle_cycles(gpu: str) -> None:
    result, program, target = ran(gpu, "simt")
    shares = [0.0, target.shared_async_write_share, 1.0]
    none, charged, full = (busy_cycles(result, program, target.replace(shared_async_write_share=s)) for s in shares)
    landed = sum(PARAMS[side] * PARAMS["k"] * 2 for side in ("m", "n"))  # type: ignore[operator]
    assert (full - none) * target.shared_bytes_per_cycle >= landed
    assert charged - none == pytest.approx(target.shared_async_write_share * (full - none))


def test_the_throughput_is_of_the_simulated_sms() -> None:
    result, program, target = ran("h100", "simt")
    share = throughputs(result, program, target, 1000.0)["shared"]
    assert share == busy_cycles(result, program, target) / (result.cycles * result.simulated_sms)
    assert 0 < share < result.shared_bytes / (result.sm_cycles * target.shared_bytes_per_cycle)
