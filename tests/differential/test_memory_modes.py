"""Does the representative mode agree with the whole chip?"""

import pytest

from heddle.machine import Machine
from heddle.pipeline import compile_kernel
from heddle.sim import default_mode, simulate
from heddle.sim.result import SimResult
from memory_cases import CLOCK_MHZ, machine
from memory_ring_gemm import ring_gemm

AGREEMENT = 0.02


def small_chip(**changes: object) -> Machine:
    """Return eight SMs with their share of an H100's L2 and DRAM."""
    shares = {"sms": 8, "dram_gbytes_per_s": 188.0, "dram_channels": 5, "l2_bytes": 8_000_000}
    return machine("h100", **{**shares, **changes})


def both_modes(m: Machine, l2_state: str, **program: object) -> tuple[SimResult, SimResult]:
    p = ring_gemm(**program)
    return tuple(
        simulate(p, m, mode=mode, clock_mhz=CLOCK_MHZ, l2_state=l2_state) for mode in ("chip", "representative")
    )


SMALL = [
    ({}, {"n": 128}),
    ({}, {"n": 256, "stages": 3}),
    ({}, {"n": 64, "groups": 1, "stages": 6}),
    ({}, {"n": 128, "grid": 3}),
    ({"l2_bytes_per_cycle_per_sm": 75.0}, {"n": 128, "schedule": "launch"}),
    ({"l2_bytes_per_cycle_per_sm": 20.0}, {"n": 128}),
    ({"dram_gbytes_per_s": 60.0}, {"n": 128}),
]
CHANCE = "which of an SM's few loads meet a channel that writes is chance, and the chip waits for the unluckiest SM"


def small_cases() -> list[object]:
    """Return (state of L2, changes of the machine, program); three SMs on five channels miss when flushed (-3.6 %)."""
    cases = []
    for state in ("warm", "cold", "flushed"):
        for changes, program in SMALL:
            missing = state == "flushed" and "grid" in program
            marks = [pytest.mark.xfail(reason=CHANCE, strict=True)] if missing else []
            cases.append(pytest.param(state, changes, program, marks=marks))
    return cases


@pytest.mark.parametrize(("l2_state", "changes", "program"), small_cases())
def test_cycles_agree(l2_state: str, changes: dict[str, object], program: dict[str, object]) -> None:
    size = {"m_tiles": 5, "n_tiles": 6, "k_steps": 24, "grid": 8, **program}
    chip, representative = both_modes(small_chip(**changes), l2_state, **size)
    assert representative.cycles == pytest.approx(chip.cycles, rel=AGREEMENT)


def test_traffic_is_that_of_the_chip() -> None:
    chip, representative = both_modes(small_chip(), "cold", m_tiles=4, n_tiles=6, k_steps=16, grid=8)
    for name in ("l2_read_bytes", "l2_write_bytes", "dram_read_bytes", "dram_write_bytes"):
        assert getattr(representative, name) == getattr(chip, name), name


@pytest.mark.slow
@pytest.mark.parametrize("l2_state", ["warm", "flushed"])
@pytest.mark.parametrize(
    "program",
    [
        {"n": 128, "m_tiles": 16, "n_tiles": 18},
        {"n": 256, "stages": 3, "m_tiles": 16, "n_tiles": 18},
        {"n": 64, "stages": 6, "m_tiles": 32, "n_tiles": 32},
        {"n": 128, "m_tiles": 10, "n_tiles": 10},
    ],
)
def test_cycles_agree_on_all_sms_of_an_h100(l2_state: str, program: dict[str, object]) -> None:
    chip, representative = both_modes(machine("h100"), l2_state, k_steps=24, grid=132, **program)
    assert representative.cycles == pytest.approx(chip.cycles, rel=AGREEMENT)


MISSES = {
    ("b200", 1024, "warm"): "waits of loads that the matrix unit hides count as the lead of the other SMs",
    ("a100", 2048, "flushed"): "who gets two CTAs of a partly filled last round is decided by single cycles",
    ("a100", 4096, "flushed"): CHANCE,
    ("h100", 1024, "flushed"): CHANCE,
    ("h100", 4096, "flushed"): CHANCE,
}
"""Compiled kernels on which the modes differ by more (docs/explanation/memory.md): the whole chip answers."""
LARGE = [
    ("a100", "gemm", {"m": 4096, "n": 4096, "k": 4096}),
    ("a100", "gemm", {"m": 8192, "n": 8192, "k": 1024}),
    ("h100", "gemm", {"m": 8192, "n": 8192, "k": 2048}),
    ("h100", "gemm", {"m": 8192, "n": 8192, "k": 8192}),
    ("h100", "gemm", {"m": 16384, "n": 8192, "k": 1024}),
    ("b200", "gemm", {"m": 16384, "n": 16384, "k": 2048}),
    ("a100", "attention", {"batch": 2, "seqlen_q": 4096}),
    pytest.param(
        "a100", "attention", {"batch": 4, "seqlen_q": 2048, "causal": 1},
        marks=pytest.mark.xfail(reason="+3.5 %: items of different length, a partly filled last round", strict=True),
    ),
    ("h100", "attention", {"batch": 4, "seqlen_q": 4096}),
    ("h100", "attention", {"batch": 4, "seqlen_q": 4096, "causal": 1}),
    ("b200", "attention", {"batch": 4, "seqlen_q": 4096, "causal": 1}),
]  # fmt: skip
"""Kernels that one group of SMs answers by default; attention with 16 heads of 128."""


def compiled_cases() -> list[object]:
    """Return (gpu, m = n, k, state of L2); a case that is known to miss must go on missing until it leaves MISSES."""
    cases = []
    for gpu in ("a100", "h100", "b200"):
        for side, depth in ((1024, 1024), (2048, 2048), (4096, 1024)):
            for state in ("warm", "flushed"):
                reason = MISSES.get((gpu, side, state))
                marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
                cases.append(pytest.param(gpu, side, depth, state, marks=marks))
    return cases


@pytest.mark.parametrize(("gpu", "side"), sorted({case[:2] for case in MISSES}))
def test_where_the_modes_differ_the_whole_chip_answers(gpu: str, side: int) -> None:
    m = machine(gpu)
    program = compile_kernel("gemm", m, {"m": side, "n": side, "k": 1024, "dtype": "fp16"})
    assert default_mode(program, m) == "chip"


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "kernel", "params"), LARGE)
def test_cycles_agree_where_one_group_answers(gpu: str, kernel: str, params: dict[str, int]) -> None:
    m = machine(gpu)
    program = compile_kernel(kernel, m, params)
    assert default_mode(program, m) == "representative"
    chip, representative = (simulate(program, m, mode=mode, clock_mhz=CLOCK_MHZ) for mode in ("chip", "representative"))
    assert representative.cycles == pytest.approx(chip.cycles, rel=AGREEMENT)


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "side", "depth", "l2_state"), compiled_cases())
def test_cycles_agree_on_compiled_kernels(gpu: str, side: int, depth: int, l2_state: str) -> None:
    m = machine(gpu)
    program = compile_kernel("gemm", m, {"m": side, "n": side, "k": depth, "dtype": "fp16"})
    chip, representative = (
        simulate(program, m, mode=mode, clock_mhz=CLOCK_MHZ, l2_state=l2_state) for mode in ("chip", "representative")
    )
    assert representative.cycles == pytest.approx(chip.cycles, rel=AGREEMENT)


@pytest.mark.parametrize("l2_state", ["warm", "flushed"])
@pytest.mark.parametrize(("gpu", "k"), [("a100", 8192), ("h100", 8192), ("b200", 8192)])
def test_skipping_periods_changes_nothing(gpu: str, k: int, l2_state: str) -> None:
    m = machine(gpu)
    program = compile_kernel("gemm", m, {"m": 2048, "n": 2048, "k": k, "dtype": "fp16"})
    skipped, played = (
        simulate(program, m, mode="representative", clock_mhz=CLOCK_MHZ, l2_state=l2_state, fast_forward=fast)
        for fast in (True, False)
    )
    assert skipped.cycles == played.cycles
    assert (skipped.stalls == played.stalls).all()
    assert l2_state == "flushed" or gpu == "h100" or skipped.fast_forwarded_cycles > 0
