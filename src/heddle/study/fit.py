"""Fitting a machine's few fitted values to measured kernels: a tool for maintainers; the presets hold its results.

A value is fitted if its provenance says so. The search is a coordinate search with shrinking steps on the mean absolute
error: it needs no gradient, its path can be read, and the store keeps every simulation of it. Values are fitted on the
rows of GEMM, but those of `ATTENTION_ROWS`: on the rows named there, and on no other row of attention.
`python -m heddle.study.fit GPU [--without FAMILY]` prints the values; `left_out.toml` keeps those found without a
family.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from heddle.machine import Machine, fitted, machine
from heddle.study.agreement import Outcome, summarize
from heddle.study.case_file import Case, own_cases
from heddle.study.pool import run_all
from heddle.study.runs import Request, request_of, run, tile_choice

Error = Callable[[Mapping[str, float]], float]
LEFT_OUT = Path(__file__).parent / "left_out.toml"
STEPS = (0.08, 0.04, 0.02)  # relative changes tried, one after the other
FITTED_ON = "gemm"
ATTENTION_ROWS = {
    "tensor_port_share": (
        "flashgpu-fa3-b16-s2048-h16-d128-full",
        "flashgpu-fa3-b8-s4096-h16-d128-full",
        "flashgpu-fa3-b4-s8192-h16-d128-full",
    )
}
"""Fields that a GEMM does not see, as nothing computes beside its products, and the rows that they are fitted on.

Time changes with the share in steps, so the preset's value was first sought on a grid (0.5 to 0.75).
"""
MAX_SWEEPS = 4  # over all fields, for each step


def coordinate_search(start: Mapping[str, float], error: Error, steps: Sequence[float] = STEPS) -> dict[str, float]:
    """Return the values with the smallest error that single changes of `steps` reach from `start`."""
    best, least = dict(start), error(start)
    for step in steps:
        for _ in range(MAX_SWEEPS):
            before = least
            for name in start:
                best, least = _along(name, best, least, step, error)
            if least == before:
                break
    return best


def _along(
    name: str, best: dict[str, float], least: float, step: float, error: Error
) -> tuple[dict[str, float], float]:
    """Walk along one coordinate while the error falls: up, or down if up does not help."""
    for factor in (1.0 + step, 1.0 / (1.0 + step)):
        start = least
        while (found := error(trial := {**best, name: best[name] * factor})) < least:
            best, least = trial, found
        if least < start:
            break
    return best, least


def with_values(gpu: Machine, values: Mapping[str, float]) -> Machine:
    """Return the machine with fitted values changed; whole-number fields are rounded."""
    typed = {n: round(v) if isinstance(getattr(gpu, n), int) else float(v) for n, v in values.items()}
    return gpu.replace(**typed)


def fit(gpu: Machine, cases: Sequence[Case], fields: Sequence[str]) -> dict[str, float]:
    """Return the values of `fields` that fit the cases best, starting from those of the machine.

    Tiles are chosen once, on the machine as it is: a fit that may change them follows noise.
    """
    asked = run_all(_with_tile, [(case, gpu) for case in cases])

    def error(values: Mapping[str, float]) -> float:
        changed = with_values(gpu, values)
        rows = run_all(run, [dataclasses.replace(one, machine=changed) for one in asked])
        outcomes = [Outcome(case=case, simulated_us=row["time_us"]) for case, row in zip(cases, rows, strict=True)]
        mean = summarize(outcomes).mean_abs_error
        print(f"{mean:.4f} {dict(values)}", file=sys.stderr)
        return mean

    return coordinate_search({name: float(getattr(gpu, name)) for name in fields}, error)


def _with_tile(question: tuple[Case, Machine]) -> Request:
    """Return what a case asks of a machine, with the tile chosen."""
    case, gpu = question
    asked = dataclasses.replace(request_of(case), machine=gpu)
    return dataclasses.replace(asked, config=tile_choice(asked, lambda done, total, what: None).config)


def parts(gpu: Machine, cases: Sequence[Case], without: str = "") -> list[tuple[list[str], list[Case]]]:
    """Return the fitted fields in groups, each with the cases that it is fitted on; a group without cases is left out.

    `without`: a family of cases that is not used.
    """
    fields = [row.field for row in fitted(gpu)]
    used = [case for case in cases if case.gpu == gpu.name and case.family != without]
    groups = [
        ([field for field in fields if field not in ATTENTION_ROWS], [c for c in used if c.kernel == FITTED_ON]),
        *(([name], [c for c in used if c.case_id in rows]) for name, rows in ATTENTION_ROWS.items() if name in fields),
    ]
    return [(names, rows) for names, rows in groups if names and rows]


def values_without(gpu: str, family: str) -> dict[str, float] | None:
    """Return the values that were fitted without a family, or None if that fit has not been made."""
    table = tomllib.loads(LEFT_OUT.read_text(encoding="utf-8"))
    found = table.get(gpu, {}).get(family)
    return None if found is None else {name: float(value) for name, value in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit one machine on our own cases and print the values."""
    parser = argparse.ArgumentParser(prog="python -m heddle.study.fit", description=main.__doc__)
    parser.add_argument("gpu", help="a preset")
    parser.add_argument("--without", metavar="FAMILY", default="", help="leave this family of cases out")
    options = parser.parse_args(arguments)
    gpu = machine(options.gpu)
    for fields, cases in parts(gpu, own_cases(), options.without):
        for name, value in fit(gpu, cases, fields).items():
            print(f"{name} = {value:g}")


if __name__ == "__main__":
    main()
