"""Does a slice of a large problem predict the cycles of the whole, and is it used only where it should be?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import Machine, machine
from heddle.study import slices
from heddle.study.choose import shortlist
from heddle.study.rank import loop_turns
from heddle.study.runs import request, run

CLOCK_MHZ = 1400.0


def gemm(gpu: Machine, m: int, n: int, k: int, label: str) -> WarpProgram:
    """Return the compiled GEMM with the candidate of that label."""
    params = find_kernel("gemm").check({"m": m, "n": n, "k": k})
    candidates = find_kernel("gemm").candidates(gpu, params)
    return pipeline.compile_kernel("gemm", gpu, params, next(c for c in candidates if c.label() == label))


@pytest.mark.parametrize(
    ("name", "sizes", "label"),
    [
        ("a100", (8192, 8192, 2048), "multistage 128x128x32 s4"),  # waves are left out
        ("h100", (2048, 4224, 32768), "cooperative 128x256x64 s4 c2x1"),  # turns of the loop are left out
        ("h100", (8192, 8192, 8192), "pingpong 128x128x64 s5 c2x1"),  # both
    ],
)
def test_a_slice_predicts_the_cycles_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, name: str, sizes: tuple[int, int, int], label: str
) -> None:
    monkeypatch.setattr(slices, "SLICE_TURNS", 100_000)
    gpu = machine(name)
    program = gemm(gpu, *sizes, label)
    cycles, use = slices.estimated(program, gpu, clock_mhz=CLOCK_MHZ, l2_state="cold")
    whole = pipeline.simulate_program(program, gpu, clock_mhz=CLOCK_MHZ, l2_state="cold").cycles
    assert cycles == pytest.approx(whole, rel=0.015)
    assert use == pytest.approx(program.flops / (cycles * gpu.tensor_flops_per_cycle * gpu.sms))


def test_items_that_a_slice_leaves_out_count_by_their_work() -> None:
    """Causal tiles, the longest first: those of the slice's second half are shorter or longer than the rest."""
    gpu = machine("a100+fiber").replace(sms=2)
    sizes = {"batch": 1, "heads_q": 4, "seqlen_q": 1024, "seqlen_kv": 1024, "head_dim": 64, "causal": 1}
    params = find_kernel("attention").check(sizes)
    program = pipeline.compile_kernel("attention", gpu, params, mode="fiber")
    cycles, _ = slices.estimated(program, gpu, clock_mhz=CLOCK_MHZ, l2_state="cold")
    whole = pipeline.simulate_program(program, gpu, clock_mhz=CLOCK_MHZ, l2_state="cold").cycles
    assert cycles == pytest.approx(whole, rel=0.1)


def test_a_cut_keeps_the_first_items_and_shortens_their_loops() -> None:
    program = gemm(machine("h100"), 2048, 2048, 4096, "cooperative 128x128x64 s6 c2x1")
    part = slices.cut(program, 10, 7)
    column = program.work.attributes.index("k_blocks")
    rest = [index for index in range(len(program.work.attributes)) if index != column]
    assert (part.work.items[:, column] == 7).all()
    assert np.array_equal(part.work.items[:, rest], program.work.items[:10, rest])
    assert part.work.grid == 10


def test_nothing_follows_the_last_items_of_a_cut() -> None:
    gpu, kernel = machine("b200+fiber"), find_kernel("attention")
    params = kernel.check({"batch": 2, "seqlen_q": 8192, "seqlen_kv": 128})
    program = pipeline.compile_kernel("attention", gpu, params, mode="fiber")
    part = slices.cut(program, 3 * program.work.grid, 1)
    last = part.work.items[:, part.work.attributes.index("next")] == 0
    assert list(np.flatnonzero(last)) == list(range(2 * program.work.grid, 3 * program.work.grid))


def test_turns_count_each_item_by_its_busiest_role() -> None:
    gpu, kernel = machine("h100"), find_kernel("gemm")
    params = kernel.check({"m": 256, "n": 512, "k": 640})
    config = dataclasses.replace(
        kernel.candidates(gpu, params)[0],
        schedule="cooperative", tile_m=128, tile_n=256, stages=4, cluster=1, cluster_side="m", split_k=1,
    )  # fmt: skip
    assert loop_turns(kernel.build(gpu, params, config)) == 4 * 10  # the producer's; consumers peel one


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> list[float]:
    """Replace simulations in full by an answer at once; return the clocks that were asked for."""
    clocks: list[float] = []

    def answer(kernel: str, gpu: Any, params: Mapping[str, Any], config: Any, *, clock_mhz: float, **_: Any) -> Any:
        clocks.append(clock_mhz)
        return {"cycles": 10_000_000, "tensor_utilization": 0.8, "time_us": 9000.0, "tflops": 250.0,
                "clock_mhz": clock_mhz, "provenance": {}}  # fmt: skip

    monkeypatch.setattr(pipeline, "run_once", answer)
    monkeypatch.setattr(slices, "estimated", lambda program, gpu, **_: (10_000_000, 0.8))
    return clocks


def test_a_large_problem_is_simulated_in_full_only_once(full: list[float]) -> None:
    row = run(request("gemm", "a100", texts={"m": 16384, "n": 16384, "k": 16384}))
    assert (len(full), row["choice"]["from_slices"]) == (1, True)


def test_a_small_problem_needs_no_slices(full: list[float]) -> None:
    row = run(request("gemm", "a100", texts={"m": 2048, "n": 2048, "k": 2048}))
    assert (len(full) > 1, row["choice"]["from_slices"]) == (True, False)


@pytest.mark.parametrize(
    ("gpu", "sizes", "words"),
    [
        ("h100", {"m": 1_000_000_000}, "at most 500,000 are simulated"),
        ("a100", {"m": 1_000_000_000, "n": 8, "k": 8}, "at most 500,000 are simulated"),
        ("h100", {"k": 1_000_000_000}, "at most 14,000,000 are simulated"),
        ("b200", {"m": 128, "n": 256, "k": 800_000_000, "split_k": 1}, "at most 536,870,912 are set up"),
    ],
)
def test_a_problem_that_would_take_too_long_is_refused(
    result_cache: Path, gpu: str, sizes: dict[str, int], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        run(request("gemm", gpu, texts=sizes))


SAMPLE = [
    ("a100", 8192, 8192, 8192, "warm"),
    ("a100", 8192, 22016, 8192, "warm"),
    ("a100", 16384, 16384, 4096, "warm"),
    ("h100", 4096, 7168, 129280, "flushed"),
    ("h100", 16384, 16384, 16384, "warm"),
    ("b200", 32768, 16384, 16384, "warm"),
]
"""Problems with a candidate of more than a million turns of the loop."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "m", "n", "k", "l2_state"), SAMPLE)
def test_what_slices_choose_is_within_one_per_cent_of_the_best(
    name: str, m: int, n: int, k: int, l2_state: Any
) -> None:
    gpu, kernel = machine(name), find_kernel("gemm")
    params = kernel.check({"m": m, "n": n, "k": k})
    by_slice, by_whole = [], []
    for config in shortlist("gemm", gpu, params, kernel.candidates(gpu, params)):
        program = pipeline.compile_kernel("gemm", gpu, params, config)
        by_slice.append(slices.estimated(program, gpu, clock_mhz=CLOCK_MHZ, l2_state=l2_state)[0])
        by_whole.append(pipeline.simulate_program(program, gpu, clock_mhz=CLOCK_MHZ, l2_state=l2_state).cycles)
    assert by_whole[int(np.argmin(by_slice))] <= 1.01 * min(by_whole)
    assert by_slice == pytest.approx(by_whole, rel=0.02)
