"""Simulated against measured: run every case that we have a kernel for, and account for the others.

The micro suite (small programs against known facts of a machine) is `heddle.study.micro`; this module is the suite of
kernels. Fitted values are reported with the cases they were fitted on, and with each family left out of the fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.errors import UnsupportedError, UserError
from heddle.machine import Machine, fitted, machine
from heddle.study.agreement import Outcome, Summary, grouped, summarize, worst
from heddle.study.case_file import Case
from heddle.study.fit import values_without, with_values
from heddle.study.pool import Progress, run_all
from heddle.study.reasons import reason
from heddle.study.runs import Request, request_of, run

Simulate = Callable[[Request], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotModelled:
    """A case that was not simulated, and why."""

    case: Case
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All outcomes of one validation, in the order of the cases."""

    outcomes: list[Outcome]
    not_modelled: list[NotModelled]

    def groups(self) -> list[tuple[str, str, Summary]]:
        """Return (gpu, group, summary): every family, then large and other sizes of GEMM, then all, GPU by GPU."""
        rows: list[tuple[str, str, Summary]] = []
        for gpu, of_gpu in grouped(self.outcomes, lambda o: o.case.gpu).items():
            parts = grouped(of_gpu, lambda o: o.case.family)
            rows += [(gpu, family, summarize(group)) for family, group in parts.items()]
            products = [outcome for outcome in of_gpu if "m" in outcome.case.sizes]
            sizes = grouped(products, lambda o: "M, N, K >= 1024" if o.case.large else "rest")
            rows += [(gpu, size, summarize(group)) for size, group in sorted(sizes.items())]
            rows.append((gpu, "all", summarize(of_gpu)))
        return rows

    def as_row(self) -> dict[str, Any]:
        """Return the validation JSON (docs/reference/results.md)."""
        total = summarize(self.outcomes).as_row() if self.outcomes else {}
        return {
            "suite": "kernels",
            "cases": [outcome.as_row() for outcome in self.outcomes],
            **{name: total.get(name) for name in ("mean_abs_error", "max_abs_error", "bias", "pearson")},
            "groups": [{"gpu": gpu, "group": name, **summary.as_row()} for gpu, name, summary in self.groups()],
            "worst": [
                _worst_row(outcome)
                for of_gpu in grouped(self.outcomes, lambda o: o.case.gpu).values()
                for outcome in worst(of_gpu)
            ],
            "not_modelled": [_absent_row(absent) for absent in self.not_modelled],
        }


def _worst_row(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    return {"case_id": case.case_id, "gpu": case.gpu, "error": outcome.error, "reason": reason(outcome)}


def _absent_row(absent: NotModelled) -> dict[str, Any]:
    case = absent.case
    return {"case_id": case.case_id, "gpu": case.gpu, "kernel": case.kernel, "why": absent.why}


def selected(cases: Sequence[Case], *, kernel: str | None = None, gpu: str | None = None) -> list[Case]:
    """Return the cases of one kernel and one GPU. Raises UserError if there are none."""
    chosen = [c for c in cases if (kernel is None or c.kernel == kernel) and (gpu is None or c.gpu == gpu)]
    if not chosen:
        kernels, gpus = sorted({c.kernel for c in cases}), sorted({c.gpu for c in cases})
        raise UserError(
            f"no case of kernel {kernel or 'any'} on {gpu or 'any GPU'}",
            hint=f"there are cases of {', '.join(kernels)} on {', '.join(gpus)}" if cases else "the file has no cases",
        )
    return chosen


def validate(
    cases: Sequence[Case],
    *,
    on: Machine | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    simulate: Simulate = run,
) -> Validation:
    """Simulate all cases as their rows say (L2 state, clock, launch), on the preset that they name or `on` another.

    Raises InternalError if a run breaks a law, as tensor use above one.
    """
    answers = run_all(_Work(simulate, on), cases, jobs=jobs, progress=progress)
    return Validation(
        outcomes=[answer for answer in answers if isinstance(answer, Outcome)],
        not_modelled=[answer for answer in answers if isinstance(answer, NotModelled)],
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """Simulate one case; a class so that it travels to another process."""

    simulate: Simulate
    on: Machine | None

    def __call__(self, case: Case) -> Outcome | NotModelled:
        try:
            asked = request_of(case)
            row = self.simulate(dataclasses.replace(asked, machine=self.on) if self.on else asked)
        except (UnsupportedError, UserError) as problem:
            return NotModelled(case=case, why=problem.message)
        return Outcome(case=case, simulated_us=row["time_us"], row=row)


def fitted_rows(cases: Sequence[Case], *, jobs: int | None = None, simulate: Simulate = run) -> list[dict[str, Any]]:
    """Return the fitted values of each GPU, the cases they were fitted on, and the error of families left out."""
    rows = []
    for name in dict.fromkeys(case.gpu for case in cases):
        gpu = machine(name)
        of_gpu = [case for case in cases if case.gpu == name]
        rows.append(
            {
                "gpu": name,
                "values": [
                    {"field": row.field, "value": row.value, "unit": row.unit, "fitted_on": row.note or row.source}
                    for row in fitted(gpu)
                ],
                "left_out": _left_out(gpu, of_gpu, jobs, simulate),
            }
        )
    return rows


def _left_out(gpu: Machine, cases: Sequence[Case], jobs: int | None, simulate: Simulate) -> list[dict[str, Any]]:
    rows = []
    for family in dict.fromkeys(case.family for case in cases):
        values = values_without(gpu.name, family)
        if values is None:
            continue
        members = [case for case in cases if case.family == family]
        found = validate(members, on=with_values(gpu, values), jobs=jobs, simulate=simulate)
        rows.append({"family": family, "values": values, **summarize(found.outcomes).as_row()})
    return rows
