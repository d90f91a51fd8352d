"""Is the answer of mode fiber that of the fastest form that a machine can run?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.machine.load import machine, with_fiber
from heddle.machine.spec import Machine
from heddle.metrics.provenance import machine_hash
from heddle.metrics.render import form_lines
from heddle.study import checks, composites, forms, mappings, runs
from heddle.study.ablation import ablation, speedups
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request

ALL = "+DP +FS +RS"
SIZES: dict[str, Any] = {"m": 256, "n": 256, "k": 128}
PRODUCT = {"m": 256, "n": 128, "k": 128}
Cost = Callable[[Machine], int]


def asked(kernel: str = "gemm", gpu: str | Machine = "a100", **texts: Any) -> Request:
    return request(kernel, gpu, mode="fiber", clock_mhz=1000, simulation="representative", texts=texts or SIZES)


def answers(patch: pytest.MonkeyPatch, cost: Cost) -> None:
    """Replace the simulation by cycles that depend on the machine's features alone."""

    def answer(kernel: str, gpu: Machine, params: Mapping[str, Any], config: Any, **options: Any) -> dict[str, Any]:
        row = {"cycles": cost(gpu), "tensor_utilization": 0.5, "time_us": 1.0, "clock_mhz": options["clock_mhz"]}
        return {**row, "kernel": kernel, "params": dict(params), "provenance": {}}

    patch.setattr(pipeline, "run_once", answer)
    patch.setattr(runs, "candidates", lambda asked: all_candidates(asked)[:1])  # tiles are not what is asked about


def all_candidates(asked: Request) -> list[Any]:
    return find_kernel(asked.kernel).candidates(asked.machine, asked.params, asked.mode)


def fewer_is_faster(gpu: Machine) -> int:
    return 1000 + 100 * gpu.fine_scheduling - 50 * (gpu.sharing_scope == "subpartition")


@pytest.mark.parametrize(
    ("kernel", "gpu", "names"),
    [
        ("gemm", "a100", ["+DP +FS", "+DP"]),
        ("gemm", "h100", ["+DP", "+DP literal"]),
        ("gemm", "b200", ["+DP"]),
        ("w4a16", "a100", ["+DP +FS", "+DP"]),
        ("gemm", "a100+fiber", ["+DP +FS", "+DP"]),
    ],
)
def test_each_form_is_found_once_at_the_most_features_that_it_uses(kernel: str, gpu: str, names: list[str]) -> None:
    assert [forms.name_of(form.machine) for form in forms.lesser(asked(kernel, gpu))] == names


def test_a_machine_runs_no_form_that_needs_what_it_lacks() -> None:
    at = STEPS[2].machine(machine("a100"))
    assert [forms.name_of(form.machine) for form in forms.lesser(asked(gpu=at))] == ["+DP"]


def test_machines_of_forms_are_those_of_the_ablation() -> None:
    base = machine("a100")
    assert [form.machine for form in forms.lesser(asked())] == [STEPS[2].machine(base), STEPS[1].machine(base)]


def test_what_is_pinned_is_of_the_form_that_uses_all_features() -> None:
    assert forms.lesser(asked(**SIZES, stages=3)) == []
    assert forms.lesser(dataclasses.replace(asked(), form="own")) == []


def test_a_shipped_mapping_can_say_that_its_form_is_ahead() -> None:
    full = asked("attention", batch=1, heads_q=2, seqlen_q=512)
    assert forms.lesser(full) == []
    assert forms.lesser(asked("attention", batch=1, heads_q=2, seqlen_q=512, head_dim=64)) != []


def test_the_fastest_form_answers_under_the_name_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, result_cache: Path
) -> None:
    answers(monkeypatch, fewer_is_faster)
    row = runs.run(asked())
    whole = with_fiber(machine("a100"))
    assert (row["cycles"], row["choice"]["form"], row["gpu"]) == (950, "+DP", "a100+fiber")
    assert {name: form["cycles"] for name, form in row["choice"]["forms"].items()} == {
        ALL: 1100, "+DP +FS": 1050, "+DP": 950,
    }  # fmt: skip
    assert row["provenance"]["machine_hash"] == machine_hash(whole)
    assert form_lines(row) == ["form: +DP, the fastest of these in cycles: +DP +FS +RS 1,100, +DP +FS 1,050, +DP 950"]


def test_of_equals_the_form_with_most_features_runs(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    answers(monkeypatch, lambda gpu: 1000)
    assert runs.run(asked())["choice"]["form"] == ALL


def test_a_form_that_is_refused_leaves_the_others(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    def refused(gpu: Machine) -> int:
        if gpu.fine_scheduling:
            raise UserError("too large")
        return 1000

    answers(monkeypatch, refused)
    row = runs.run(asked())
    assert (row["choice"]["form"], list(row["choice"]["forms"])) == ("+DP", ["+DP"])


def test_without_any_form_the_first_reason_is_given(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    def refused(gpu: Machine) -> int:
        raise UserError(f"too large for {gpu.name}")

    answers(monkeypatch, refused)
    with pytest.raises(UserError, match=r"too large for a100\+fiber"):
        runs.run(asked())


def test_only_forms_near_the_best_estimate_are_simulated(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    answers(monkeypatch, fewer_is_faster)
    monkeypatch.setattr(runs, "FULL_TURNS_FIBER", 0)
    estimates = {ALL: 1000, "+DP +FS": 1090, "+DP": 1110}
    monkeypatch.setattr(
        runs, "_estimated", lambda asked, config, clock: {"cycles": estimates[forms.name_of(asked.machine)]}
    )
    row = runs.run(asked())
    found = {name: (form["cycles"], form["simulated"]) for name, form in row["choice"]["forms"].items()}
    assert found == {ALL: (1100, True), "+DP +FS": (1050, True), "+DP": (1110, False)}
    assert row["choice"]["form"] == "+DP +FS"


def test_steps_of_a_sequence_choose_for_themselves(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    answers(monkeypatch, fewer_is_faster)
    whole = request("ffn", "a100", mode="fiber", clock_mhz=1000, simulation="representative", texts={"tokens": 128})
    monkeypatch.setattr(composites, "sequence_json", lambda parts, *a, **k: {"parts": [p.row for p in parts]})
    row = composites.answer(whole, runs.run, lambda step: runs.tile_choice(step, _quiet), _quiet)
    assert {part["choice"]["form"] for part in row["parts"]} == {"+DP"}
    assert {part["gpu"] for part in row["parts"]} == {"a100+fiber"}
    assert all(ALL in part["choice"]["forms"] for part in row["parts"])


def _quiet(done: int, total: int, what: str) -> None:
    pass


def test_each_step_of_the_ablation_is_at_least_as_fast_as_the_one_before(
    monkeypatch: pytest.MonkeyPatch, result_cache: Path
) -> None:
    answers(monkeypatch, lambda gpu: fewer_is_faster(gpu) if gpu.dynamic_parallelism else 2000)
    found = list(speedups(ablation("gemm", machine("a100"), SIZES)).values())
    assert len(found) == len(STEPS)
    assert found == sorted(found)


def test_a_search_for_a_lesser_form_asks_for_a_new_answer(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    answers(monkeypatch, fewer_is_faster)
    runs.run(asked())
    assert runs.stored(asked()) is not None
    mappings.keep(forms.lesser(asked())[0], {"stages": 2})
    assert runs.stored(asked()) is None


def small(gpu: str) -> Request:
    return asked("gemm", machine(gpu).replace(sms=2), **PRODUCT)


@pytest.mark.parametrize("gpu", ["a100", "b200"])
def test_features_that_a_form_does_not_use_change_nothing(gpu: str) -> None:
    at = small(gpu)
    for form in forms.lesser(at):
        config = runs.candidates(form)[0]
        program = pipeline.compile_kernel(form.kernel, form.machine, form.params, config, "fiber")
        alone, whole = (
            pipeline.simulate_program(program, where, clock_mhz=1000) for where in (form.machine, at.machine)
        )
        assert alone.cycles == whole.cycles


def test_the_program_is_that_of_the_form_that_runs(result_cache: Path) -> None:
    at = small("b200")
    row = runs.run(at)
    assert row["choice"]["form"] == "+DP"
    assert runs.compiled(at).params["config"] == row["params"]["config"]
    assert forms.as_in(at, row).machine == STEPS[1].machine(machine("b200").replace(sms=2))


def test_a_check_is_of_the_form_that_uses_all_features(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def stop(question: Request) -> None:
        seen.append(question.form)
        raise UserError("enough")

    monkeypatch.setattr(checks, "compiled", stop)
    with pytest.raises(UserError, match="enough"):
        check(small("b200"))
    assert seen == ["own"]
