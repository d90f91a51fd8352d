"""The studies of oracles and switches: figures on small problems, and the rows of a comparison."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heddle import pipeline
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.sim import SimResult, simulate
from heddle.sim.ideal import ideal
from heddle.study import paper
from heddle.study.compare import attempt, compare
from heddle.study.runs import request, run

CASES = {
    "gemm": {"m": 1024, "n": 1024, "k": 512},
    "attention": {"batch": 1, "heads_q": 8, "seqlen_q": 512, "head_dim": 128},
}
"""Sizes of GTSim's published cases."""


def simulated(kernel: str, *, oracle: str = "", off: str = "", engine: str = "compiled", **changes: Any) -> SimResult:
    h100 = machine("h100")
    params = find_kernel(kernel).check(CASES[kernel] | changes)
    program = pipeline.compile_kernel(kernel, h100, params)
    what = ideal([n for n in oracle.split(",") if n], [n for n in off.split(",") if n])
    return simulate(program, h100, l2_state="cold", engine=engine, ideal=what)


def change(kernel: str, off: str) -> float:
    return abs(simulated(kernel, off=off).cycles / simulated(kernel).cycles - 1)


@pytest.mark.parametrize("kernel", CASES)
def test_barriers_off_changes_more_than_order_off(kernel: str) -> None:
    order, barriers = change(kernel, "order"), change(kernel, "barriers")
    assert barriers > 1.5 * order
    assert change(kernel, "barriers,data") > barriers


@pytest.mark.parametrize("names", [pytest.param("dp", marks=pytest.mark.slow), "fs", "dp,fs,rs"])
def test_the_core_without_compilation_does_the_same(names: str) -> None:
    small = {"seqlen_q": 128, "seqlen_kv": 176, "heads_q": 1}
    results = [simulated("attention", oracle=names, engine=engine, **small) for engine in ("compiled", "python")]
    assert results[0].cycles == results[1].cycles
    assert (results[0].stalls_pc == results[1].stalls_pc).all()


@pytest.mark.parametrize("names", ["dp", "fs", "dp,fs,rs"])
def test_every_instruction_is_issued_once_under_an_oracle(names: str) -> None:
    small = {"seqlen_q": 128, "seqlen_kv": 352, "heads_q": 1}
    assert simulated("attention", oracle=names, **small).warp_instructions == (
        simulated("attention", **small).warp_instructions
    )


def test_the_paper_has_a_figure_for_each_oracle_alone() -> None:
    assert [paper.oracle_speedup("sm_90", [name]) for name in ("dp", "fs", "rs")] == [1.21, 1.18, 1.1]
    assert paper.oracle_speedup("sm_90", ["dp", "fs"]) is None
    assert paper.oracle_speedup("sm_80", ["dp"]) is None


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> list[Any]:
    """Answer at once, with fewer cycles where something is idealised; return what was asked."""
    asked: list[Any] = []

    def answer(kernel: str, gpu: Any, params: Mapping[str, Any], config: Any, **options: Any) -> dict[str, Any]:
        asked.append(options.get("ideal"))
        cycles = 1000 if options.get("ideal") else 2000
        return {"cycles": cycles, "tensor_utilization": 0.8, "ceiling_speedup": 1.25, "time_us": 25.0, "tflops": 700.0,
                "clock_mhz": options["clock_mhz"], "params": {"config": str(config)}, "provenance": {},
                "pipes": {"tensor": 0.8}, "issue_utilization": 0.5, "read_ports": {}, "speed_of_light": [],
                "stalls_by_role": {"scores": {"issued": 0.5, "wait": 0.5}}}  # fmt: skip

    monkeypatch.setattr(pipeline, "run_once", answer)
    return asked


SIZES = {"m": "512", "n": "512", "k": "512"}


def test_tile_and_clock_are_chosen_for_the_machine_as_it_is(answered: list[Any]) -> None:
    plain = run(request("gemm", "h100", texts=SIZES))
    count = len(answered)
    row = run(request("gemm", "h100", oracle=["dp"], texts=SIZES))
    assert [bool(what) for what in answered[count:]] == [True]
    assert row["clock_mhz"] == plain["clock_mhz"]
    assert row["ideal"] == {"oracle": ["dp"], "off": [], "baseline_cycles": 2000, "speedup": 2.0}


def test_a_comparison_has_the_rows_of_both_studies(answered: list[Any]) -> None:
    row = compare("gemm", "h100", oracle=True, jobs=1, texts=SIZES)
    assert [step["oracle"] for step in row["oracles"]] == [["dp"], ["fs"], ["rs"], ["dp", "fs", "rs"]]
    assert {step["speedup"] for step in row["oracles"]} == {2.0}
    by_off = {tuple(step["off"]): step for step in row["switches"]}
    assert by_off["order", "barriers"]["change"] == -0.5
    assert by_off["barriers",]["gtsim_error_percent"] == 35.44


def test_an_ablation_has_them_on_h100_only(answered: list[Any]) -> None:
    assert "oracles" in compare("gemm", "h100", ablate=True, jobs=1, texts=SIZES)
    assert "oracles" not in compare("gemm", "a100", ablate=True, jobs=1, texts=SIZES)


def test_an_oracle_that_a_launch_has_no_instructions_for_is_absent() -> None:
    texts = {"batch": 1, "heads_q": 1, "seqlen_q": 128, "seqlen_kv": 128}
    asked = request("attention_bwd_preprocess_fa3", "h100", simulation="representative", texts=texts)
    found = attempt(dataclasses.replace(asked, oracle=("fs",)))
    assert isinstance(found, str)
    assert "no warp-group matrix instructions" in found
