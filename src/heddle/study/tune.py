"""`heddle tune`: the fastest configuration of a FIBER-native kernel, found with the simulator.

A search along the fields: from the best configuration so far one field is changed at a time, upwards and downwards;
all such neighbours are compared on a slice of the problem (`heddle.study.slices`), and the best becomes the next start
until none is better. The winner and the start are then simulated in full. Every simulation goes through the store, so
that a search that was stopped goes on. Where nothing was pinned the winner is kept, and `run` and `compare` use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.machine.spec import Machine
from heddle.study import composites, mappings, runs, store
from heddle.study.pool import Progress, run_all
from heddle.study.requests import Request, request

Row = dict[str, Any]
MOST_ROUNDS = 8
MOST_TRIED = 40
"""Configurations that a search simulates at most; a few seconds each."""
POLICIES = frozenset({"rescaled"})
"""Fields that say what data do (how often a maximum grows), not how the work is laid out: never searched."""
SMALL = 8
"""Up to this value a field changes by one (an even one by two, as well), above it by a factor of two or a quarter."""


def tune(
    kernel: str,
    gpu: str | Machine,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    texts: Mapping[str, Any] | None = None,
) -> Row:
    """Search, confirm and return the row of docs/reference/results.md. `texts`: kernel parameters and pinned fields.

    Of a sequence of launches each step is tuned as the kernel that it is: `steps` has the rows.

    Raises UserError where there is no FIBER-native kernel or it cannot run the problem.
    """
    asked = request(kernel, gpu, mode="fiber", simulation="representative", texts=texts)
    if composites.composite(asked) is not None:
        return _steps_tuned(asked, jobs, progress)
    return _tune(asked, jobs, progress)


def _steps_tuned(asked: Request, jobs: int | None, progress: Progress | None) -> Row:
    """Tune the steps of a sequence; those without a FIBER-native kernel have a note in place of a row."""
    steps: list[Row] = []
    for step in composites.questions(asked):
        named = {"step": step.name, "count": step.count, "note": step.note}
        steps.append(named if step.note else {**named, **_tune(step.asked, jobs, progress)})
    named = {"kernel": asked.kernel, "gpu": asked.machine.name, "params": dict(asked.params)}
    return {**named, "steps": steps}


def _tune(asked: Request, jobs: int | None, progress: Progress | None) -> Row:
    asked = dataclasses.replace(
        asked, clock_mhz=runs.choice_clock(asked), clock_source="that at which tiles are compared"
    )
    description = {field.name: getattr(asked, field.name) for field in dataclasses.fields(asked)} | {"tune": True}
    row = store.remembered(description, lambda: _tuned(asked, jobs, progress), store.SEARCH_ROOMS)
    if not asked.pins:
        mappings.keep(asked, row["winner"]["pins"])
    return row


def _tuned(asked: Request, jobs: int | None, progress: Progress | None) -> Row:
    fields = searched_fields(asked)
    begin = runs.candidates(asked)
    found, refused = _search(asked, begin, fields, jobs, progress)
    first = min((config for config in begin if config in found), key=lambda config: found[config])
    winner, start = _confirmed(asked, found, first, refused, jobs)
    if start[0]["cycles"] < winner[0]["cycles"]:  # the slice was wrong
        winner = start
    return {
        "kernel": asked.kernel,
        "gpu": asked.machine.name,
        "params": dict(asked.params),
        "clock_mhz": asked.clock_mhz,
        "searched": fields,
        "tried": {config.label(): cycles for config, cycles in sorted(found.items(), key=lambda pair: pair[1])},
        "refused": refused,
        "start": {"config": first.label(), "cycles": start[0]["cycles"]},
        "winner": {
            "config": winner[1].label(),
            "pins": {name: getattr(winner[1], name) for name in fields},
            "cycles": winner[0]["cycles"],
            "tensor_utilization": winner[0]["tensor_utilization"],
        },
        "gain": start[0]["cycles"] / winner[0]["cycles"],
    }


def _confirmed(
    asked: Request, found: dict[Any, int], first: Any, refused: dict[str, str], jobs: int | None
) -> tuple[tuple[Row, Any], tuple[Row, Any]]:
    """Return the best configuration and the first with their results; the best that is right, which slices do not see.

    Raises UserError if none is.
    """
    problem = ""
    for best in sorted(found, key=lambda config: found[config]):
        rows = run_all(_in_full, [(asked, best), (asked, first)] if best != first else [(asked, best)], jobs=jobs)
        right = [(row, config) for row, config in zip(rows, (best, first), strict=False) if not isinstance(row, str)]
        if right and right[0][1] is best:
            return right[0], right[-1]
        refused[best.label()] = problem = str(rows[0])
    raise UserError(f"no configuration is right: {problem}")


def searched_fields(asked: Request) -> list[str]:
    """Return the whole-number fields of the kernel's configuration that are for people to set and are not pinned."""
    native = find_kernel(asked.kernel).native_on(asked.machine)
    return [field.name for field in native.tile if field.type is int and field.name not in {*asked.pins, *POLICIES}]


def neighbours(config: Any, fields: Sequence[str]) -> Iterator[Any]:
    """Yield configurations that differ from one in one field."""
    for name in fields:
        value = getattr(config, name)
        for other in steps(value):
            yield dataclasses.replace(config, **{name: other})


def steps(value: int) -> list[int]:
    """Return the values next to one."""
    if value <= SMALL:
        reach = 2 if value and value % 2 == 0 else 1  # some fields must be even
        return [other for other in range(max(0, value - reach), value + reach + 1) if other != value]
    quarter = max(1, value // 4)
    return sorted({value // 2, value - quarter, value + quarter, value * 2} - {value})


def _search(
    asked: Request, begin: Sequence[Any], fields: Sequence[str], jobs: int | None, progress: Progress | None
) -> tuple[dict[Any, int], dict[str, str]]:
    """Return the cycles of what was tried, by configuration, and what cannot be built, why."""
    report = progress or (lambda done, total, what: None)
    found: dict[Any, int] = {}
    refused: dict[Any, str] = {}
    wanted = list(begin)
    for _ in range(MOST_ROUNDS):
        wanted = [config for config in wanted if config not in found and config not in refused]
        wanted = wanted[: MOST_TRIED - len(found)]
        if not wanted:
            break
        best_before = min(found.values(), default=None)
        for config, answer in zip(wanted, run_all(_sliced, [(asked, c) for c in wanted], jobs=jobs), strict=True):
            if isinstance(answer, str):
                refused[config] = answer
            else:
                found[config] = answer
        report(len(found), MOST_TRIED, "configurations")
        if not found:
            raise UserError(f"no configuration can be built: {next(iter(refused.values()))}")
        best = min(found, key=lambda config: found[config])
        if best_before is not None and found[best] >= best_before:
            break
        wanted = list(dict.fromkeys(neighbours(best, fields)))
    return found, {config.label(): reason for config, reason in refused.items()}


def _sliced(question: tuple[Request, Any]) -> int | str:
    """Return the cycles of a configuration estimated from a slice, or why it cannot be built."""
    asked, config = question
    try:
        return int(runs.estimated(asked, config)["cycles"])
    except UserError as error:
        return error.message.partition("\n")[0]


def _in_full(question: tuple[Request, Any]) -> Row | str:
    """Return the result of a configuration, or why it is refused: the verifier plays it now."""
    asked, config = question
    try:
        return runs.run(dataclasses.replace(asked, config=config, pins={}))
    except UserError as error:
        return error.message.partition("\n")[0]
