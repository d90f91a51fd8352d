"""Answers about sequences of launches: each step is asked as the kernel that it is, and the answers are added up.

The chip changes its clock over milliseconds and a loop repeats the whole sequence, so all steps have one clock: that of
the clock model for the sum. Gaps between launches are not counted, as they are not between the runs of a single kernel
in a loop; where a case includes launch, each launch counts (docs/explanation/composites.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from heddle.errors import UserError
from heddle.kernels import Composite, Step
from heddle.kernels.registry import composite_of, find_kernel
from heddle.machine.spec import Machine
from heddle.metrics.sequence import Part, sequence_json
from heddle.study import choose, clock
from heddle.study.pool import Progress
from heddle.study.requests import Request, Simulation, request

if TYPE_CHECKING:
    from heddle.sim.memory_system import L2State

Row = dict[str, Any]
Run = Callable[[Request], Row]


@dataclass(frozen=True, slots=True)
class Question:
    """One step of a sequence as a question of its own; `note`: why it is not asked in the mode of the sequence."""

    name: str
    asked: Request
    count: int
    note: str = ""


def composite(asked: Request) -> Composite | None:
    """Return the composite that a question is about, None where it is about one launch."""
    return composite_of(asked.kernel, asked.params)


def refuse(asked: Request, what: str) -> None:
    """Raise UserError if a question is about a sequence of launches, as where one program is needed."""
    found = composite(asked)
    if found is not None:
        steps = [f"{step.name} ({step.kernel})" for step in found.steps(asked.machine, asked.params, asked.mode)]
        raise UserError(
            f"{asked.kernel} is a sequence of launches here: {', '.join(steps)}; {what} is of one launch",
            hint="ask for one of these kernels; `heddle run --json` lists their parameters under steps",
        )


def questions(asked: Request) -> list[Question]:
    """Return the steps of a composite as questions, composites among them resolved. Raises UserError."""
    return list(_questions(asked, "", 1))


def _questions(asked: Request, outer: str, count: int) -> Iterator[Question]:
    found = composite(asked)
    assert found is not None
    for step in found.steps(asked.machine, asked.params, asked.mode):
        yield from _asked(asked, step, f"{outer}{step.name}", count * step.count)


def _asked(asked: Request, step: Step, name: str, count: int) -> Iterator[Question]:
    """Ask for one step in the mode of the sequence, or as today where it has no FIBER-native kernel."""
    mode, machine, note = asked.mode, asked.machine, ""
    inner = composite_of(step.kernel, step.params)
    if mode == "fiber" and inner is None and (lack := _lack(step.kernel, machine)):
        mode, machine = "simt", asked.plain or machine
        note = f"step {name} has no {lack} ({step.kernel}): it runs as today"
    fresh = request(step.kernel, machine, mode=mode, texts={**step.params, **step_pins(asked.pins, step.name)})
    here = dataclasses.replace(
        fresh, clock_mhz=asked.clock_mhz, clock_source=asked.clock_source, rested=asked.rested, library=asked.library,
        simulation=asked.simulation, oracle=asked.oracle, off=asked.off, plain=asked.plain,
        l2_state=cast("L2State", step.l2_state or asked.l2_state),
    )  # fmt: skip
    if inner is not None:
        yield from _questions(here, f"{name}.", count)
    else:
        yield Question(name, here, count, note)


def _lack(kernel: str, machine: Machine) -> str:
    """Say which FIBER-native kernel there is none of for a machine with some of the features, empty if there is one."""
    native = find_kernel(kernel).native.get(machine.architecture)
    if native is None:
        return "FIBER-native kernel"
    if all(found.lacks(machine) for found in (native, *native.instead)):
        return f"FIBER-native kernel without {' and '.join(native.lacks(machine))}"
    return ""


def step_pins(pins: Mapping[str, Any], step: str) -> dict[str, Any]:
    """Return the pins of a step, which `step.field` names, without the name of the step."""
    return {name.partition(".")[2]: value for name, value in pins.items() if name.partition(".")[0] == step}


def answer(asked: Request, run: Run, tile_choice: Callable[[Request], choose.Choice], progress: Progress) -> Row:
    """Return the result of a sequence. `run` answers a question about one launch, `tile_choice` chooses its tile."""
    if asked.profile:
        refuse(asked, "a profile")
    steps = questions(asked)
    chosen = []
    for done, step in enumerate(steps):
        progress(done, len(steps), step.name)
        chosen.append(tile_choice(step.asked))

    def at(clock_mhz: float, simulation: Simulation) -> list[Row]:
        return [
            run(_pinned(step.asked, choice, clock_mhz, simulation)) | {"gpu": step.asked.machine.name}
            for step, choice in zip(steps, chosen, strict=True)
        ]

    settled = asked.clock_mhz or _settled(asked, steps, lambda mhz: at(mhz, "representative"))
    rows = at(settled, asked.simulation)
    parts = [
        Part(name=s.name, row={**row, "choice": row["choice"] | _chosen(choice)}, count=s.count, note=s.note)
        for s, choice, row in zip(steps, chosen, rows, strict=True)
    ]
    source = asked.clock_source or ("given" if asked.clock_mhz else "clock model")
    row = sequence_json(
        parts, asked.machine, kernel=asked.kernel, mode=asked.mode, params=dict(asked.params), clock_source=source
    )
    if asked.oracle or asked.off:
        row["ideal"] = _idealised(asked, steps, rows)
    return _with_launches(row, asked) if asked.includes_launch else row


def _pinned(asked: Request, choice: choose.Choice, clock_mhz: float, simulation: Simulation) -> Request:
    """Return the question about a step in the form and with the tile that were chosen."""
    machine = choice.machine or asked.machine
    return dataclasses.replace(asked, config=choice.config, machine=machine, clock_mhz=clock_mhz, simulation=simulation)


def _chosen(choice: choose.Choice) -> Row:
    """Return how the tile of a step was chosen, before it was pinned for all clocks."""
    fields = {"cycles": dict(choice.cycles), "refused": dict(choice.refused), "forms": dict(choice.forms)}
    return {**fields, "from_slices": choice.from_slices, "origin": choice.origin}


def _settled(asked: Request, steps: list[Question], rows_at: Callable[[float], list[Row]]) -> float:
    """Return the clock of the clock model for the whole sequence."""

    def at(clock_mhz: float) -> clock.AtClock:
        rows = rows_at(clock_mhz)
        cycles = [step.count * row["cycles"] for step, row in zip(steps, rows, strict=True)]
        used = sum(count * row["tensor_utilization"] for count, row in zip(cycles, rows, strict=True))
        return clock.AtClock(sum(cycles), used / max(1, sum(cycles)))

    return clock.settle(asked.machine, at, rested=asked.rested)


def _idealised(asked: Request, steps: list[Question], rows: list[Row]) -> Row:
    """Say what is idealised in the steps, and what that changes in their sum."""
    both = [(step.count, row) for step, row in zip(steps, rows, strict=True)]
    baseline = sum(count * row["ideal"]["baseline_cycles"] for count, row in both)
    cycles = sum(count * row["cycles"] for count, row in both)
    ideal = {"oracle": list(asked.oracle), "off": list(asked.off)}
    return {**ideal, "baseline_cycles": baseline, "speedup": baseline / cycles}


def _with_launches(row: Row, asked: Request) -> Row:
    """Add launch and drain of every launch, for cases whose time includes them."""
    launches, each = row["launches"] + asked.extra_launches, asked.machine
    time_us = row["time_us"] + launches * (each.kernel_launch_us + each.kernel_drain_us)
    return {**row, "time_us": time_us, "tflops": row["tflops"] * row["time_us"] / time_us, "includes_launch": True}
