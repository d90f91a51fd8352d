"""`heddle compare`: today's kernel, the same with stages given back early, and the FIBER-native one, by one engine.

All runs have the clock of the baseline, so that speed-ups are in cycles. Every run goes through the store; runs that
are not there are made in several processes. What does not exist is absent, with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.errors import UnsupportedError, UserError, unknown_name
from heddle.kernels.registry import find_entry, find_kernel
from heddle.machine.load import machine as load_machine
from heddle.machine.spec import Machine
from heddle.study import composites, idealised, limits, runs
from heddle.study.features import STEPS
from heddle.study.paper import figure
from heddle.study.pool import Progress, run_all
from heddle.study.requests import SIMULATIONS, Request, request

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One run of a comparison: the question, or why there is none."""

    name: str
    asked: Request | None = None
    reason: str = ""


def compare(
    kernel: str,
    gpu: str | Machine,
    *,
    ablate: bool = False,
    oracle: bool = False,
    clock_mhz: float | None = None,
    l2_state: str = "warm",
    jobs: int | None = None,
    progress: Progress | None = None,
    texts: Mapping[str, Any] | None = None,
) -> Row:
    """Return the comparison as docs/reference/results.md describes it. Raises UserError if the baseline cannot run.

    `texts`: kernel parameters; each kernel chooses its own tile. `jobs`: processes, all cores by default. `oracle` adds
    what today's kernel gains with something idealised; `ablate` does so too on the GPU that such studies are about.
    """
    machine = load_machine(gpu) if isinstance(gpu, str) else gpu
    values = dict(texts or {})
    _refuse_pins(kernel, values)
    today = request(kernel, machine, clock_mhz=clock_mhz, l2_state=l2_state, simulation="representative", texts=values)
    baseline, base = baseline_of(today, progress)
    at = dataclasses.replace(base, clock_mhz=baseline["clock_mhz"], clock_source="that of the baseline")
    parts = [*_controls(at), native_part("fiber", at, machine, values)]
    if ablate:
        parts += [native_part(step.name, at, step.machine(machine), values) for step in STEPS]
    oracle |= ablate and machine.architecture == idealised.ARCHITECTURE
    if oracle:
        parts += [Part(name, asked) for name, asked in idealised.questions(at).items()]
    results, absent = answers_of(parts, jobs, progress)
    _fastest_control(results, absent)
    row = _comparison(at, baseline, results, absent, ablate)
    if oracle:
        row["oracles"] = idealised.oracles(at, baseline, results, absent)
        row["switches"] = idealised.switches(baseline, results, absent)
    return row


def _refuse_pins(kernel: str, values: Mapping[str, Any]) -> None:
    """Raise UserError for what is no parameter of a kernel, fields of its tile among them."""
    names = [parameter.name for parameter in find_entry(kernel).parameters]
    for name in values:
        if "." in name:
            raise UserError(
                f"compare takes no pins; got {name!r}",
                hint="each form of a step chooses its own tile; `heddle run` takes STEP.FIELD",
            )
        if name not in names:
            raise unknown_name(f"parameter of {kernel}", name, names)


def baseline_of(base: Request, progress: Progress | None) -> tuple[Row, Request]:
    """Return today's result, and its question in the mode in which all are asked: modes are off by different amounts.

    What moves data only is limited by what the whole chip shares, and takes the mode that `heddle run` would take.
    """
    baseline = runs.run(base, progress=progress)
    if not baseline["tensor_utilization"]:
        baseline = runs.run(dataclasses.replace(base, simulation="auto"), progress=progress)
        mode = baseline["simulation"]["mode"]  # the steps of a sequence may have several
        base = dataclasses.replace(base, simulation=mode if mode in SIMULATIONS else "auto")
    return baseline, base


CONTROL = "control"


def _controls(at: Request) -> list[Part]:
    """The baseline whose stages are given back when the matrix unit has read them: the ways that are tried."""
    if composites.composite(at) is not None:
        return [Part(CONTROL, None, "a sequence of launches; its steps may have controls of their own")]
    tried, reason = find_kernel(at.kernel).early_release(at.machine.architecture)
    if not tried:
        return [Part(CONTROL, None, reason)]
    return [Part(f"{CONTROL} {n}", dataclasses.replace(at, pins=pins)) for n, pins in enumerate(tried)]


def _fastest_control(results: dict[str, Row], absent: dict[str, str]) -> None:
    """Put the fastest of the controls in the place of all."""
    rows = [results.pop(name) for name in [*results] if name.startswith(f"{CONTROL} ")]
    reasons = [absent.pop(name) for name in [*absent] if name.startswith(f"{CONTROL} ")]
    if rows:
        results[CONTROL] = min(rows, key=lambda row: int(row["cycles"]))
    elif reasons:
        absent[CONTROL] = reasons[0]


def native_part(name: str, at: Request, machine: Machine, values: Mapping[str, Any]) -> Part:
    """The FIBER-native kernel on a machine with some of the features."""
    try:
        asked = request(
            at.kernel, machine, mode="fiber", clock_mhz=at.clock_mhz, l2_state=at.l2_state,
            simulation=at.simulation, texts=_of_native(at.kernel, values),
        )  # fmt: skip
        asked = dataclasses.replace(asked, clock_source=at.clock_source, plain=at.machine if asked.plain else None)
        if composites.composite(asked) is not None and all(step.note for step in composites.questions(asked)):
            return Part(name, None, f"no launch of {at.kernel} has a FIBER-native kernel on {at.machine.name}")
    except UserError as error:
        return Part(name, None, error.message.partition("\n")[0])
    return Part(name, asked)


def _of_native(kernel: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a FIBER-native kernel has too: those of today's kernels alone are the baseline's."""
    today = {parameter.name for parameter in find_entry(kernel).parameters if parameter.today}
    return {name: value for name, value in values.items() if name not in today}


def attempt(asked: Request) -> Row | str:
    """Answer a question; where its kernel cannot run it, return why, which is kept in the store as well."""
    try:
        return runs.run(asked)
    except (UserError, UnsupportedError) as error:
        reason = error.message.partition("\n")[0]
        runs.keep_refusal(asked, reason)
        return reason


def refuse_timeline(kernel: str, gpu: str | Machine, values: Mapping[str, Any]) -> None:
    """Raise UserError, before anything is simulated, if a comparison is of no single launch that has a timeline."""
    _refuse_pins(kernel, values)
    composites.refuse(request(kernel, gpu, texts=values), "a timeline")


def write_timeline(row: Row, gpu: str | Machine, path: str) -> int:
    """Write a Perfetto trace of the FIBER run, or of the baseline where there is none; return its slices."""
    name = "fiber" if row["fiber"] else "baseline"
    mode = "fiber" if row["fiber"] else "simt"
    params = _of_native(row["kernel"], row["params"]) if row["fiber"] else row["params"]
    asked = request(row["kernel"], gpu, mode=mode, clock_mhz=row["clock_mhz"], l2_state=row["l2_state"],
                    texts=params)  # fmt: skip
    return runs.write_timeline(asked, row[name], path)


def answers_of(
    parts: Sequence[Part], jobs: int | None, progress: Progress | None
) -> tuple[dict[str, Row], dict[str, str]]:
    """Run what is not stored; return results by name, and why the others are absent."""
    absent = {part.name: part.reason for part in parts if part.asked is None}
    asked = {part.name: part.asked for part in parts if part.asked is not None}
    found: dict[str, Row | str | None] = {
        name: runs.stored(question) or runs.stored_refusal(question) or None for name, question in asked.items()
    }
    missing = [name for name, row in found.items() if row is None]
    questions: list[Request] = []
    for name in missing:
        if asked[name] not in questions:
            questions.append(asked[name])
    answers = run_all(attempt, questions, jobs=jobs, progress=progress)
    for name in missing:
        found[name] = answers[questions.index(asked[name])]
    absent.update({name: row for name, row in found.items() if isinstance(row, str)})
    return {name: row for name, row in found.items() if isinstance(row, dict)}, absent


def _comparison(at: Request, baseline: Row, results: Mapping[str, Row], absent: Mapping[str, str], ablate: bool) -> Row:
    control, fiber = results.get("control"), results.get("fiber")
    row: Row = {
        "kernel": at.kernel,
        "gpu": at.machine.name,
        "params": dict(at.params),
        "clock_mhz": at.clock_mhz,
        "l2_state": at.l2_state,
        "ceiling_speedup": baseline["ceiling_speedup"],
        "speedup": _ratio(baseline, fiber),
        "speedup_over_control": _ratio(control, fiber),
        "speedup_of_control": _ratio(baseline, control),
        "paper": dict(figure(at.kernel, at.machine.architecture, at.params)),
        "steps": _steps(baseline, fiber),
        "absent": dict(absent),
        "baseline": baseline,
        "control": control,
        "fiber": fiber,
    }
    row["limit"] = limits.limit(row)
    if ablate:
        row["ablation"] = [_step(step.name, step.meaning, baseline, results.get(step.name), absent) for step in STEPS]
    return row


def _steps(baseline: Row, fiber: Row | None) -> list[Row]:
    """Set the steps of a sequence beside each other by name, empty for one launch; null where one form has no such."""
    forms: dict[str, dict[str, Row]] = {
        form: {step["name"]: step for step in (row or {}).get("steps", [])}
        for form, row in (("baseline", baseline), ("fiber", fiber))
    }
    found = []
    for name in dict.fromkeys(name for steps in forms.values() for name in steps):
        old, new = (forms[form].get(name) for form in ("baseline", "fiber"))
        either = new or old or {}
        figures = {
            f"{form}_{figure}": step[figure] if step else None
            for form, step in (("baseline", old), ("fiber", new))
            for figure in ("cycles", "share")
        }
        kernels = {"kernel": either["kernel"], "baseline_kernel": (old or either)["kernel"]}
        found.append({"name": name, **kernels, **figures, "speedup": _ratio(old, new), "note": either["note"]})
    return found


def _ratio(slow: Row | None, fast: Row | None) -> float | None:
    """Return the speed-up in cycles, None where a run is absent."""
    return slow["cycles"] / fast["cycles"] if slow and fast else None


def _step(name: str, meaning: str, baseline: Row, row: Row | None, absent: Mapping[str, str]) -> Row:
    return {
        "features": name,
        "meaning": meaning,
        "cycles": row["cycles"] if row else None,
        "speedup": _ratio(baseline, row),
        "tensor_utilization": row["tensor_utilization"] if row else None,
        "config": row["params"]["config"] if row else None,
        "absent": absent.get(name, ""),
    }
