"""Does a run, from its start to any point, ever move more through DRAM or L2 than they can?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from heddle.ir.warp import Control, WarpProgram
from heddle.machine import Machine
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.result import SimResult
from memory_cases import CLOCK_MHZ, machine, stream_program
from memory_ring_gemm import ring_gemm

MODES = ("chip", "representative")
STATES = ("cold", "flushed")


def chip(**changes: object) -> Machine:
    """Return eight SMs with their share of an H100's DRAM, and an L2 that everything written leaves."""
    shares = {"sms": 8, "dram_gbytes_per_s": 188.0, "dram_channels": 5, "l2_bytes": 256 * 1024}
    return machine("h100", **{**shares, **changes})


def streaming(direction: str, steps: int) -> WarpProgram:
    """Return a program in which eight warps of every SM stream through memory of their own."""
    program = stream_program(
        direction=direction, block_bytes=4096, parts=8, part_by_rank=True, warps=8, blocks=8 * steps, steps=steps,
        items=8, grid=8,
    )  # fmt: skip
    access, loop, *rest = program.instructions
    answered = Control(write_barrier=0) if direction == "load" else Control(read_barrier=0)
    waiting = Control(wait=frozenset({0}))
    code = (replace(access, control=answered), replace(loop, control=waiting), *rest)
    return replace(program, instructions=code)


def run(program: WarpProgram, m: Machine, mode: str, l2_state: str) -> SimResult:
    return simulate(program, m, mode=mode, clock_mhz=CLOCK_MHZ, l2_state=l2_state)


def moved(result: SimResult, m: Machine) -> tuple[float, float]:
    """Return bytes of service at L2 and bytes at DRAM."""
    l2 = result.l2_read_bytes + m.l2_write_cost * result.l2_write_bytes
    return l2, result.dram_read_bytes + result.dram_write_bytes


def check(m: Machine, cycles: int, l2: float, dram: float) -> None:
    """Compare what was moved with the rates; what DRAM has in its write buffers or queued may come on top."""
    queued = 2 * m.dram_channels * m.dram_write_batch_bytes
    assert l2 <= cycles * m.l2_bytes_per_cycle_per_sm * m.sms
    assert dram <= cycles * m.dram_bytes_per_cycle(CLOCK_MHZ) + queued


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("l2_state", STATES)
@pytest.mark.parametrize("direction", ["load", "store"])
def test_streams_stay_within_the_rates_up_to_any_length(direction: str, l2_state: str, mode: str) -> None:
    m = chip()
    for steps in (2, 5, 9, 12, 16, 20, 33, 64, 100):
        result = run(streaming(direction, steps), m, mode, l2_state)
        check(m, result.cycles, *moved(result, m))


@pytest.mark.parametrize("mode", MODES)
def test_streams_that_only_write_reach_the_rate_of_dram(mode: str) -> None:
    m = chip()
    short, long = (run(streaming("store", steps), m, mode, "cold") for steps in (64, 192))
    rate = (long.dram_write_bytes - short.dram_write_bytes) / (long.cycles - short.cycles)
    assert 0.97 <= rate / m.dram_bytes_per_cycle(CLOCK_MHZ) <= 1.005  # a buffer more or less at the two ends


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("l2_state", STATES)
@pytest.mark.parametrize("k_steps", [6, 24])
def test_a_gemm_stays_within_the_rates(k_steps: int, l2_state: str, mode: str) -> None:
    m = chip()
    result = run(ring_gemm(n=128, m_tiles=5, n_tiles=6, k_steps=k_steps, grid=8), m, mode, l2_state)
    check(m, result.cycles, *moved(result, m))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("l2_state", STATES)
def test_a_gemm_over_the_edges_of_its_tensors_stays_within_the_rates(l2_state: str, mode: str) -> None:
    m = chip()
    program = compile_kernel("gemm", m, {"m": 1000, "n": 1224, "k": 520, "dtype": "fp16"})
    result = run(program, m, mode, l2_state)
    check(m, result.cycles, *moved(result, m))
