"""`heddle check` of a sequence of launches: each step against its own reference, then the chain from end to end.

In the chain a step reads what the steps before it have written, as the simulated order wrote it, and the last results
are compared with a reference that knows nothing of the steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle import interp
from heddle.errors import InternalError, UserError
from heddle.kernels import Composite, Step
from heddle.kernels.registry import composite_of
from heddle.study import composites
from heddle.study.checks import check
from heddle.study.runs import Request, compiled

Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]


@dataclasses.dataclass(slots=True)
class _Chain:
    """What the launches so far have written, and what was found on the way."""

    written: Arrays = dataclasses.field(default_factory=dict)
    tolerance: float = 0.0  # of the narrowest type on the way
    hazards: list[str] = dataclasses.field(default_factory=list)
    cycles: int = 0


def check_chain(asked: Request, *, seed: int) -> Row:
    """Return verdict, errors and hazards of a sequence; `steps` has the row of each step's own check."""
    composite = composites.composite(asked)
    assert composite is not None
    questions = {step.name: step for step in composites.questions(asked)}
    steps: list[Row] = []
    for question in questions.values():
        row = check(question.asked, seed=seed)
        steps.append({"name": question.name, "note": question.note, **row})
    inputs, expected = composite.reference(asked.machine, asked.params, asked.mode, seed)
    chain = _Chain()
    _launch(composite, asked, inputs, questions, "", chain)
    errors = [_error(name, want, chain) for name, want in expected.items()]
    hazards = [*chain.hazards, *(f"step {row['name']}: {text}" for row in steps for text in row["hazards"])]
    passed = not hazards and all(error.ok for error in errors) and all(row["passed"] for row in steps)
    return {
        "kernel": asked.kernel,
        "gpu": asked.machine.name,
        "mode": asked.mode,
        "params": dict(asked.params),
        "seed": seed,
        "passed": passed,
        "relative_error": max(error.relative_error for error in errors),
        "tolerance": max(error.tolerance for error in errors),
        "outputs": [{k: v for k, v in dataclasses.asdict(e).items() if k != "worst_index"} for e in errors],
        "hazards": hazards,
        "cycles": chain.cycles,
        "steps": steps,
    }


def _launch(
    composite: Composite,
    asked: Request,
    inputs: Mapping[str, NDArray[Any]],
    questions: Mapping[str, composites.Question],
    outer: str,
    chain: _Chain,
) -> None:
    """Execute the steps of a composite in their order; a composite among them with what it is fed."""
    for step in composite.steps(asked.machine, asked.params, asked.mode):
        name = f"{outer}{step.name}"
        inner = composite_of(step.kernel, step.params)
        if inner is not None:
            fed = {**inputs, **{to: _source(source, inputs, outer, chain) for to, source in step.feeds.items()}}
            part = dataclasses.replace(asked, kernel=step.kernel, params=step.params)
            _launch(inner, part, fed, questions, f"{name}.", chain)
        else:
            _execute(composite, asked.params, step, questions[name], inputs, outer, chain)


def _execute(
    composite: Composite,
    params: Mapping[str, Any],
    step: Step,
    question: composites.Question,
    inputs: Mapping[str, NDArray[Any]],
    outer: str,
    chain: _Chain,
) -> None:
    """Execute one launch on what it is fed; keep what it writes."""
    program = compiled(dataclasses.replace(question.asked, form="own"))
    fed = {
        tensor.name: _source(step.feeds.get(tensor.name, tensor.name), inputs, outer, chain)
        for tensor in program.tensors
        if tensor.role == "input" or tensor.name in step.feeds
    }
    report = interp.check(program, question.asked.machine, fed, {})
    chain.hazards += [f"step {question.name}, fed by the steps before it: {hazard}" for hazard in report.hazards]
    chain.cycles += report.cycles * question.count
    chain.tolerance = max(chain.tolerance, *(interp.TOLERANCES.get(t.dtype, 0.0) for t in program.tensors))
    for tensor, values in composite.written(params, step, report.tensors, dict(inputs)).items():
        chain.written[f"{outer}{step.name}.{tensor}"] = values


def _source(source: str, inputs: Mapping[str, NDArray[Any]], outer: str, chain: _Chain) -> NDArray[Any]:
    """Return an input of the composite, or what one of its steps has written."""
    if source in inputs:
        return inputs[source]
    if (name := f"{outer}{source}") in chain.written:
        return chain.written[name]
    raise InternalError(
        f"no step before has written {name!r}, and it is no input; there are {', '.join(chain.written)}"
    )


def _error(name: str, want: NDArray[np.float64], chain: _Chain) -> interp.TensorError:
    """Compare what the chain has written with the reference."""
    if name not in chain.written:
        raise UserError(f"the chain has not written {name!r}; it has written {', '.join(chain.written)}")
    return interp.compare(name, chain.written[name], want, chain.tolerance)
