"""Does a run take the mapping that a search has found, its own before the shipped one, and say where it comes from?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heddle import pipeline
from heddle.kernels.registry import find_kernel
from heddle.metrics.render import headline
from heddle.study import mappings, runs
from heddle.study.requests import Request, request
from heddle.study.tune import tune

ATTENTION = {"batch": "1", "heads_q": "2", "seqlen_q": "512"}


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> list[Any]:
    """Replace the simulation by one that answers at once; return the configurations that were asked for."""
    configs: list[Any] = []

    def answer(kernel: str, gpu: Any, params: Mapping[str, Any], config: Any, *, clock_mhz: float, **_: Any) -> Any:
        configs.append(config)
        cycles = 1000 + 10 * config.stages
        return {"cycles": cycles, "tensor_utilization": 0.8, "clock_mhz": clock_mhz, "provenance": {}}

    monkeypatch.setattr(pipeline, "run_once", answer)
    monkeypatch.setattr(runs, "estimated", lambda asked, config: built(asked, config))
    return configs


def built(asked: Request, config: Any) -> dict[str, Any]:
    """Refuse what cannot be built; fewer stages are faster."""
    find_kernel(asked.kernel).build(asked.machine, asked.params, config, asked.mode)
    return {"cycles": 1000 + 10 * config.stages, "tensor_utilization": 0.8}


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ship one mapping, for full attention on H100."""
    row = {"kernel": "attention", "architecture": "sm_90", "where": {"head_dim": 128, "causal": 0},
           "pins": {"stages": 2, "pooled": 0}, "form": "own", "found": "heddle tune attention --gpu h100"}  # fmt: skip
    monkeypatch.setattr(mappings, "shipped", lambda: [row])
    return row


def asked(**more: str) -> Request:
    return request("attention", "h100", mode="fiber", clock_mhz=1500, texts={**ATTENTION, **more})


def test_a_shipped_winner_is_used_and_named(simulated: list[Any], shipped: dict[str, Any]) -> None:
    row = runs.run(asked())
    assert (simulated[-1].stages, simulated[-1].pooled) == (2, 0)
    assert row["choice"]["origin"] == "shipped, found by heddle tune attention --gpu h100"


def test_a_winner_is_for_its_kind_of_problem_only(simulated: list[Any], shipped: dict[str, Any]) -> None:
    assert mappings.winner(asked(causal="1")) is None


def test_what_is_given_goes_before_a_winner(simulated: list[Any], shipped: dict[str, Any]) -> None:
    runs.run(asked(pooled="1"))
    assert simulated[-1].pooled == 1


def test_a_winner_that_cannot_be_built_is_not_used(simulated: list[Any], shipped: dict[str, Any]) -> None:
    shipped["pins"] = {"stages": 40}
    assert "candidates" in runs.run(asked())["choice"]["origin"]


def test_a_machine_without_a_feature_takes_no_winner(shipped: dict[str, Any]) -> None:
    question = asked()
    plain = dataclasses.replace(question, machine=question.machine.replace(fine_scheduling=False))
    assert mappings.winner(plain) is None


def test_a_search_decides_what_later_runs_take(simulated: list[Any], shipped: dict[str, Any]) -> None:
    before = runs.run(asked())
    best = tune("attention", "h100", jobs=1, texts=ATTENTION)["winner"]["pins"]
    after = runs.run(dataclasses.replace(asked(), form="own"))
    assert before["choice"]["origin"] != after["choice"]["origin"] == "found on this computer by heddle tune attention"
    assert {name: getattr(simulated[-1], name) for name in best} == best


def test_a_search_with_given_fields_decides_nothing(simulated: list[Any], shipped: dict[str, Any]) -> None:
    tune("attention", "h100", jobs=1, texts={**ATTENTION, "pooled": "1"})
    assert mappings.winner(asked()).pins == shipped["pins"]  # type: ignore[union-attr]


@pytest.mark.parametrize("row", mappings.shipped(), ids=lambda row: f"{row['kernel']} {row['architecture']}")
def test_what_is_shipped_names_fields_that_people_can_set(row: Mapping[str, Any]) -> None:
    native = find_kernel(row["kernel"]).native[row["architecture"]]
    assert set(row["pins"]) <= {field.name for field in native.tile}


def test_the_mapping_is_named_in_what_people_read() -> None:
    row = {"kernel": "gemm", "gpu": "h100+fiber", "mode": "fiber", "params": {}, "time_us": 1.0, "tflops": 1.0,
           "cycles": 1000, "clock_mhz": 1500.0, "provenance": {"clock_source": "given"},
           "choice": {"origin": "shipped, found by heddle tune gemm"}}  # fmt: skip
    assert headline(row).endswith("\nmapping: shipped, found by heddle tune gemm")


SEARCHED = {"attention": {"batch": 1, "heads_q": 32}, "gemm": {}}
"""Sizes of the commands that found the mappings, beside those that a mapping is for."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", mappings.shipped(), ids=lambda row: f"{row['kernel']} {row['architecture']} {row['where']}"
)
def test_what_is_shipped_is_what_a_search_finds_within_a_hundredth(row: Mapping[str, Any], result_cache: Path) -> None:
    gpu = {"sm_80": "a100", "sm_90": "h100", "sm_100": "b200"}[row["architecture"]]
    sizes = {**row["where"], **SEARCHED[row["kernel"]]}
    question = request(row["kernel"], gpu, mode="fiber", texts=sizes)
    shipped_one = mappings.configuration(question, mappings.Winner(pins=row["pins"], origin=""))
    tried = tune(row["kernel"], gpu, jobs=1, texts=sizes)["tried"]
    assert min(tried.values()) > 0.99 * tried[shipped_one.label()]
