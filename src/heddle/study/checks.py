"""`heddle check`: is what the kernel computes right, in the order in which it is simulated?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from heddle import interp
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels._parameters import Parameter
from heddle.kernels.registry import composite_of, find_entry, find_kernel
from heddle.study.runs import Request, compiled

CHECK_SIZE = 512  # of a size that the user does not give: numbers do not depend on how many tiles there are
MAX_FLOPS = 2 * 2048**3  # beyond it the log of every access of every CTA does not fit a computer's memory


def check_sizes(kernel: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with sizes that were not given made small: as the parameter says, else `CHECK_SIZE`."""
    parameters = find_entry(kernel).parameters
    small = {
        p.name: min(int(p.default), CHECK_SIZE) if p.small is None else p.small
        for p in parameters
        if (isinstance(p.default, int) or p.small is not None) and p.name not in given
    }
    if not _suits(small.get("heads_kv", 0), given, parameters):
        del small["heads_kv"]
    return {**small, **given}


def _suits(heads_kv: int | str, given: dict[str, Any], parameters: Sequence[Parameter]) -> bool:
    """Tell whether a small number of key heads divides the query heads given; else the default, 0, follows these."""
    heads_q = str(given.get("heads_q", ""))
    follows = any(p.name == "heads_kv" and p.default == 0 for p in parameters)
    return not (follows and heads_kv and heads_q.isdecimal()) or int(heads_q) % int(heads_kv) == 0


def check(asked: Request, *, seed: int = 0, program: WarpProgram | None = None) -> dict[str, Any]:
    """Execute a kernel with seeded random numbers; return verdict, relative error, tolerance and hazards.

    In mode fiber the form that uses all features of the machine is checked; machines with fewer have the others.
    `program` replaces the compiled kernel by another version of it, as when a barrier has been taken out. A sequence of
    launches is checked step by step and from end to end (`heddle.study.check_chain`).
    """
    if seed < 0:
        raise UserError(f"the seed must be at least 0, got {seed}")
    if composite_of(asked.kernel, asked.params) is not None:
        from heddle.study.check_chain import check_chain  # which checks steps by this function

        return check_chain(asked, seed=seed)
    kernel = find_kernel(asked.kernel)
    if (flops := kernel.flops(asked.params)) > MAX_FLOPS:
        raise UserError(
            f"{flops:.2g} FLOPs are too many to execute; a check takes up to {MAX_FLOPS:.2g}",
            hint="give smaller sizes: numbers do not depend on how many tiles there are",
        )
    inputs, expected = kernel.reference(asked.params, seed)
    program = program or compiled(dataclasses.replace(asked, form="own"))
    used = {tensor.name for tensor in program.tensors}
    report = interp.check(
        program,
        asked.machine,
        {name: array for name, array in inputs.items() if name in used},
        {name: array for name, array in expected.items() if name in used},
    )
    return {
        "kernel": asked.kernel,
        "gpu": asked.machine.name,
        "mode": asked.mode,
        "params": dict(asked.params),
        "seed": seed,
        "passed": report.ok,
        "relative_error": report.relative_error,
        "tolerance": max(error.tolerance for error in report.errors),
        "outputs": [{k: v for k, v in dataclasses.asdict(e).items() if k != "worst_index"} for e in report.errors],
        "hazards": [str(hazard) for hazard in report.hazards],
        "cycles": report.cycles,
    }
