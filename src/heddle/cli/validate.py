"""`heddle validate`: simulated against measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.common import JsonFile, check_outputs, check_store, emit, progress
from heddle.errors import UserError, unknown_name

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "heddle validate --kernel gemm --gpu h100"
SUITES = ("kernels", "micro")


def command(
    suite: Annotated[str, typer.Option("--suite", metavar="SUITE", help="kernels or micro.")] = "kernels",
    cases: Annotated[
        str | None, typer.Option("--cases", metavar="FILE.csv", help="Measurements; else our own.")
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", metavar="NAME", help="Only this kernel.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="G", help="Only this GPU.")] = None,
    max_mean_error: Annotated[
        float | None, typer.Option("--max-mean-error", metavar="X", help="Exit 1 above this share (0.06 is 6 %).")
    ] = None,
    left_out: Annotated[
        bool, typer.Option("--left-out/--no-left-out", help="Also the error of families left out of the fit.")
    ] = True,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes; else all cores.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare simulated with measured times, case by case: mean, maximum, bias, correlation."""
    if suite not in SUITES:
        raise unknown_name("suite", suite, SUITES)
    for option, value in (("--cases", cases), ("--kernel", kernel)):
        if suite == "micro" and value is not None:
            raise UserError(
                f"{option} {value} has no meaning for the micro suite", hint="its rows are those of the GPU"
            )
    if max_mean_error is not None and not max_mean_error > 0:
        raise UserError(f"--max-mean-error {max_mean_error} must be positive", hint="0.06 is 6 %")
    check_outputs(json=json_file)
    check_store()
    row = _micro(gpu) if suite == "micro" else _kernels(cases, kernel, gpu, left_out, jobs)
    emit(row, json_file, lambda out: show(row, out))
    if max_mean_error is None:
        return
    if row["mean_abs_error"] is None:
        raise UserError("no case was judged, so --max-mean-error cannot hold", hint="see which cases are not modelled")
    if not row["mean_abs_error"] <= max_mean_error:
        raise typer.Exit(1)


def _kernels(
    cases: str | None, kernel: str | None, gpu: str | None, left_out: bool, jobs: int | None
) -> dict[str, Any]:
    from pathlib import Path

    from heddle.study.case_file import own_cases, read_cases
    from heddle.study.validate import fitted_rows, selected, validate

    chosen = selected(own_cases() if cases is None else read_cases(Path(cases)), kernel=kernel, gpu=gpu)
    with progress("simulating cases") as report:
        found = validate(chosen, jobs=jobs, progress=report)
        modelled = [outcome.case for outcome in found.outcomes]
        return {**found.as_row(), "fitted": fitted_rows(modelled, jobs=jobs) if left_out else []}


def _micro(gpu: str | None) -> dict[str, Any]:
    from heddle.study.micro import micro_suite

    with progress("simulating rows"):
        return micro_suite(gpu)


def show(row: dict[str, Any], out: Console) -> None:
    """Print the cases, the groups, the worst five and what was not modelled."""
    from rich.table import Table

    from heddle.metrics.render import percent

    table = Table("case", "gpu", "measured", "simulated", "unit", "error", title="Cases", title_justify="left")
    for case in row["cases"]:
        name = f"{case['case_id']} (echo)" if case.get("echo") else case["case_id"]
        numbers = f"{case['measured']:.4g}", f"{case['simulated']:.4g}"
        table.add_row(name, case["gpu"], *numbers, case["unit"], signed(case["error"]))
    out.print(table)
    if row.get("groups"):
        out.print(_groups(row["groups"]))
    for worst in row.get("worst", []):
        out.print(f"worst: {worst['case_id']} {signed(worst['error'])}: {worst['reason']}")
    for absent in row.get("not_modelled", []):
        out.print(f"not modelled: {absent['case_id']}: {absent['why']}")
    for gpu in row.get("fitted", []):
        _fitted(gpu, out)
    if row["mean_abs_error"] is not None:
        out.print(
            f"{len(row['cases'])} cases: mean {percent(row['mean_abs_error'])}, "
            f"maximum {percent(row['max_abs_error'])}, bias {signed(row['bias'])}"
        )


def _groups(groups: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from heddle.metrics.render import percent

    columns = ("gpu", "group", "cases", "mean |error|", "max |error|", "bias", "pearson")
    table = Table(*columns, title="Groups", title_justify="left")
    for group in groups:
        pearson = "-" if group["pearson"] is None else f"{group['pearson']:.4f}"
        table.add_row(
            group["gpu"], group["group"], str(group["cases"]), percent(group["mean_abs_error"]),
            percent(group["max_abs_error"]), signed(group["bias"]), pearson,
        )  # fmt: skip
    return table


def _fitted(gpu: dict[str, Any], out: Console) -> None:
    from heddle.metrics.render import percent

    for value in gpu["values"]:
        out.print(f"fitted on {gpu['gpu']}: {value['field']} = {value['value']} {value['unit']} ({value['fitted_on']})")
    for family in gpu["left_out"]:
        mean, most = percent(family["mean_abs_error"]), percent(family["max_abs_error"])
        out.print(f"{gpu['gpu']} fitted without {family['family']}: its error is {mean}, at most {most}")


def signed(share: float) -> str:
    """Format a share as a percentage with its sign."""
    return f"{100 * share:+.1f} %"
