"""Figures 11 and 12: what each feature of FIBER gives on every workload, and the counters behind it.

One context of 4,096 tokens everywhere, as the paper states it (decoding: 16 sequences). Each workload runs as today and
on machines with dynamic parallelism (DP), fine-grained scheduling (FS) and register sharing (RS), one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heddle.errors import HeddleError
from heddle.metrics.render import own_pipes
from heddle.study.ablation import ablation, in_part, parts_of_gain, speedups
from heddle.study.compare_all import Case, all_cases
from heddle.study.exhibits._exhibit import Answer, Exhibit
from heddle.study.exhibits.fig2b import stack
from heddle.study.paper import ablation_figures
from heddle.study.pool import Progress, run_all
from heddle.study.requests import request

GPUS = ("h100", "a100", "b200")
"""The paper's figures are of H100."""


def workloads(gpu: str) -> list[Case]:
    """Return the workloads of a GPU: those of `heddle compare --all`, attention without a mask, of one sequence."""
    cases = [case for case in all_cases(gpu) if case.machine.name == gpu]
    return [case for case in cases if case.kernel != "attention" or _one_full(dict(case.params))]


def _one_full(params: Mapping[str, Any]) -> bool:
    return params["batch"] == 1 and not params.get("causal")


def study(
    cases: Iterable[Case] | None = None, *, jobs: int | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return one row a workload and GPU (docs/reference/results.md); one that cannot run has `failed`, the reason."""
    asked = [case for gpu in GPUS for case in workloads(gpu)] if cases is None else list(cases)
    return run_all(_row, asked, jobs=jobs, progress=progress)


def _row(case: Case) -> dict[str, Any]:
    named = {"workload": case.name, "kernel": case.kernel, "gpu": case.machine.name, "params": dict(case.params)}
    try:
        found = ablation(case.kernel, case.machine, dict(case.params))
    except HeddleError as error:
        return {**named, "failed": error.message.partition("\n")[0]}
    speedup = speedups(found)
    forms = [
        {
            "features": form.step.name,
            "meaning": form.step.meaning,
            "absent": form.absent,
            "speedup": speedup.get(form.step.name),
            "in_part": in_part(found, form),
            **({} if form.row is None else counters(form.row)),
        }
        for form in found.forms
    ]
    complete = request(case.kernel, case.machine, texts=dict(case.params)).params
    return {
        **named,
        "baseline": counters(found.baseline),
        "forms": forms,
        "parts_of_gain": parts_of_gain({form["features"]: form["speedup"] for form in forms if _tells(form)}),
        "paper": ablation_figures(case.kernel, case.machine.architecture, complete),
    }


def _tells(form: Mapping[str, Any]) -> bool:
    """Whether a step says what its features give: it has a result, of all that FIBER has a kernel for."""
    return form["speedup"] is not None and not form["in_part"]


def counters(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters of a result that the paper's figures show, shares of time or of warp cycles."""
    return {
        "cycles": result["cycles"],
        "config": str(result["params"]["config"]),
        "tensor_utilization": result["tensor_utilization"],
        "occupancy": result["occupancy"],
        "pipes": own_pipes(result["pipes"]),
        "issue_utilization": result["issue_utilization"],
        "stalls": stack(result["stalls"])["shares"],
        "notes": list(result.get("notes", [])),
    }


def _answer(jobs: int | None, progress: Progress | None) -> Answer:
    return {"rows": study(jobs=jobs, progress=progress)}


UTILIZATION = Exhibit(
    name="utilization", title="What each feature gives, and the counters behind it",
    where="Fig. 11 and 12, ablation", answer=_answer,
)  # fmt: skip
