"""One question, one answer: which tile, at which clock, how long. Every simulation on the way goes through the store.

`run` chooses the tile, settles the clock and returns the result JSON; `heddle.study.requests` checks the question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.machine.spec import Machine
from heddle.metrics.provenance import machine_hash
from heddle.sim.ideal import ideal
from heddle.study import composites, forms, mappings, store
from heddle.study.choose import Choice, choose, shortlist
from heddle.study.clock import AtClock, settle
from heddle.study.paper import profile_figures
from heddle.study.rank import FULL_TURNS, FULL_TURNS_FIBER, check_turns, loop_turns
from heddle.study.requests import Request, request, request_of
from heddle.study.tiles import pinned
from heddle.study.unvalidated import baseline_note, unvalidated

if TYPE_CHECKING:
    from heddle.ir.warp import WarpProgram
    from heddle.study.pool import Progress

# what compiles and simulates is imported where it is used: a stored answer needs no compiler

__all__ = [
    "Request", "candidates", "choice_clock", "compiled", "estimated", "keep_refusal", "request", "request_of", "run",
    "stored", "stored_refusal", "tile_choice", "write_timeline",
]  # fmt: skip

SETTLED_IN_FULL = 40_000_000
"""Warp instructions of one group up to which the clock settles on full simulations: about three seconds each."""
NOT_SIMULATED = frozenset(
    {"name", "description", "tensor_peak_clock_mhz", "tdp_watts", "kernel_launch_us", "kernel_drain_us"}
    | {"clock_burst_mhz", "clock_sustained_mhz", "clock_time_constant_ms"}
)
"""Machine fields that no simulation at a given clock sees: a change of them asks for no new simulation."""


def run(asked: Request, *, progress: Progress | None = None) -> dict[str, Any]:
    """Answer a question: choose the tile, settle the clock, simulate; the result JSON with `choice` added."""
    report = progress or (lambda done, total, what: None)
    row = store.remembered(_description(asked), lambda: _answer(asked, report), store.SEARCH_ROOMS)
    return _judged(asked, row)


def stored(asked: Request) -> dict[str, Any] | None:
    """Return the answer to a question if it is in the store."""
    row = store.load(store.key_of(_description(asked), store.SEARCH_ROOMS))
    return None if row is None else _judged(asked, row)


def _judged(asked: Request, row: dict[str, Any]) -> dict[str, Any]:
    """Add what is said beside a row: it needs no simulation and so is not stored."""
    about = asked.kernel, asked.machine, asked.params
    return {**row, "unvalidated": unvalidated(*about), "baseline_note": baseline_note(*about)}


def keep_refusal(asked: Request, reason: str) -> None:
    """Keep in the store why a question has no answer."""
    store.save(store.key_of(_description(asked) | {"refused": True}, store.SEARCH_ROOMS), {"reason": reason})


def stored_refusal(asked: Request) -> str:
    """Return why a question has no answer, if the store knows."""
    row = store.load(store.key_of(_description(asked) | {"refused": True}, store.SEARCH_ROOMS))
    return str(row["reason"]) if row else ""


def _description(asked: Request) -> dict[str, Any]:
    fields = {f.name: getattr(asked, f.name) for f in dataclasses.fields(asked)}
    if composites.composite(asked) is not None:
        steps = [(step.name, step.count, _description(step.asked)) for step in composites.questions(asked)]
        return fields | {"answer": True, "steps": steps}
    others = [(form.machine, _pins_of_winner(form)) for form in forms.lesser(asked)]
    return fields | {"answer": True, "mapping": _pins_of_winner(asked), "forms": others}


def _pins_of_winner(asked: Request) -> dict[str, Any] | None:
    found = mappings.winner(asked)
    return None if found is None else dict(found.pins)


def _answer(asked: Request, report: Progress) -> dict[str, Any]:
    if composites.composite(asked) is not None:
        return composites.answer(asked, run, lambda step: tile_choice(step, report), report)
    machine = asked.machine
    choice = tile_choice(asked, report)
    asked = dataclasses.replace(asked, config=choice.config, machine=choice.machine or machine)
    turns = max(_turns(asked, [choice.config]), default=0)
    if asked.simulation != "chip":
        check_turns(asked.kernel, turns)
    asked = dataclasses.replace(asked, simulation=_simulation(asked))
    clock = asked.clock_mhz or _settled(asked, turns > _full_turns(asked))
    row = _simulated(asked, choice.config, clock, profile=asked.profile)
    row["provenance"]["clock_source"] = asked.clock_source or "clock model"
    row["provenance"]["machine_hash"] = machine_hash(machine)
    row["gpu"] = machine.name
    row["choice"] = {
        "cycles": dict(choice.cycles),
        "refused": dict(choice.refused),
        "clock_mhz": choice_clock(asked),
        "from_slices": choice.from_slices,
        "origin": choice.origin,
        "form": forms.name_of(asked.machine) if asked.mode == "fiber" else "",
        "forms": dict(choice.forms),
    }
    if asked.profile:
        row["paper"] = dict(profile_figures(asked.kernel, machine.architecture, asked.mode))
    if asked.oracle or asked.off:
        row["ideal"] = _idealised(asked, row, _simulated(_as_it_is(asked), choice.config, clock))
    return _with_launch(row, machine, 1 + asked.extra_launches) if asked.includes_launch else row


def _as_it_is(asked: Request) -> Request:
    """Return the question about the machine as it is: what tile and clock are chosen for."""
    return dataclasses.replace(asked, oracle=(), off=())


def _idealised(asked: Request, row: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Say what is idealised in a row, and what it changes."""
    return {
        "oracle": list(asked.oracle),
        "off": list(asked.off),
        "baseline_cycles": baseline["cycles"],
        "speedup": baseline["cycles"] / row["cycles"],
    }


def _simulation(asked: Request) -> Literal["chip", "representative"]:
    """Return the mode of the answer: what is asked for, else what the program is suited for.

    Idealised machines are compared as kernels are: by one group of SMs throughout.
    """
    if asked.simulation != "auto":
        return asked.simulation
    if asked.oracle or asked.off:
        return "representative"
    from heddle import sim

    program = compiled(asked)
    if sim.default_mode(program, asked.machine) == "chip":
        return "chip"
    sim.check_group(program, asked.machine)
    return "representative"


def _settled(asked: Request, costly: bool) -> float:
    """Return the clock of the clock model; where a simulation is costly, the search begins where slices settle."""
    quick = dataclasses.replace(_as_it_is(asked), simulation="representative")  # chip mode is for the answer

    def at(clock: float) -> AtClock:
        row = _simulated(quick, asked.config, clock)
        return AtClock(row["cycles"], row["tensor_utilization"])

    def by_slice(clock: float) -> AtClock:
        row = _estimated(asked, asked.config, clock)
        return AtClock(row["cycles"], row["tensor_utilization"])

    first = settle(asked.machine, by_slice, rested=asked.rested) if costly else None
    if first is not None and _one_takes_long(asked):
        return first
    return settle(asked.machine, at, rested=asked.rested, first_mhz=first)


def _one_takes_long(asked: Request) -> bool:
    """Tell whether the clock must settle on slices alone, as one simulation takes seconds."""
    from heddle import sim

    return sim.group_cost(compiled(asked), asked.machine) > SETTLED_IN_FULL


def _full_turns(asked: Request) -> int:
    """Return the loop turns up to which a candidate is simulated in full."""
    return FULL_TURNS_FIBER if asked.mode == "fiber" else FULL_TURNS


def choice_clock(asked: Request) -> float:
    """Return the clock at which tiles are compared: the given one, else a fixed one, whatever the clock model says."""
    return asked.clock_mhz or asked.machine.tensor_peak_clock_mhz


def tile_choice(asked: Request, report: Progress) -> Choice:
    """Choose the tile, in mode fiber that of the fastest form. Raises UserError if no form can run the problem."""
    others = forms.lesser(asked)
    if not others:
        return _own_tile(asked, report)
    clock = choice_clock(asked)
    ways = forms.Ways(
        tile=lambda form: _own_tile(form, report),
        costly=lambda form: max(_turns(form, [form.config]), default=0) > _full_turns(form),
        estimate=lambda form: int(_estimated(form, form.config, clock)["cycles"]),
        simulate=lambda form: int(_as_answered(form, clock)["cycles"]),
    )
    return forms.fastest(asked, others, ways)


def _as_answered(asked: Request, clock: float) -> dict[str, Any]:
    """Simulate a question as its answer is, at the clock at which tiles are compared."""
    resolved = dataclasses.replace(asked, simulation=_simulation(asked))
    return _simulated(resolved, asked.config, clock)


def _own_tile(asked: Request, report: Progress) -> Choice:
    """Take the stored winner of a search, else choose among the candidates that agree with the pins.

    Candidates are compared by slices if one of them is costly, else on one group of SMs, as chip mode is for the
    answer; on the whole chip where they are few and differ in how SMs share DRAM.
    """
    if asked.config is not None:
        return Choice(config=asked.config, origin="given")
    found = mappings.winner(asked)
    if found is not None and (config := mappings.configuration(asked, found)) is not None:
        return Choice(config=config, origin=found.origin)
    tried = candidates(asked)
    quick = dataclasses.replace(_as_it_is(asked), simulation=_comparison(asked, tried), profile=False)
    turns = _turns(asked, tried)
    check_turns(asked.kernel, min(turns, default=0))
    costly = len(tried) > 1 and max(turns, default=0) > _full_turns(asked)
    done = 0

    def cycles_of(config: Any) -> int:
        nonlocal done
        report(done, len(tried), "tile")
        done += 1
        return int((_estimated if costly else _simulated)(quick, config, choice_clock(asked))["cycles"])

    origin = f"the fastest of {len(tried)} candidates" if len(tried) > 1 else "the only candidate"
    return dataclasses.replace(choose(tried, cycles_of), from_slices=costly, origin=origin)


def _comparison(asked: Request, tried: Sequence[Any]) -> Literal["chip", "representative"]:
    """Return the mode in which candidates are compared: that of the answer where SMs share DRAM all the time."""
    if len(tried) < 2 or not find_kernel(asked.kernel).shares_dram:
        return "representative"
    for config in tried:
        try:
            return _simulation(dataclasses.replace(asked, config=config))
        except UserError:  # this one does not fit the machine; what `choose` says
            continue
    return "representative"


def candidates(asked: Request) -> list[Any]:
    """Return the configurations that are compared: those of the kernel that agree with the pins, the likely ones."""
    found = find_kernel(asked.kernel)
    where = asked.machine, asked.params
    offered = found.library_candidates(asked.library, *where) if asked.library else found.candidates(*where, asked.mode)
    return shortlist(asked.kernel, *where, pinned(offered, asked.pins), asked.mode)


def estimated(asked: Request, config: Any) -> dict[str, Any]:
    """Return cycles and tensor use of a configuration, from a slice at the clock of `choice_clock`."""
    return _estimated(asked, config, choice_clock(asked))


def _turns(asked: Request, configs: Sequence[Any]) -> list[int]:
    """Return the loop turns of each configuration that can be built; why the others cannot, `choose` says."""
    from heddle import pipeline

    found = []
    for config in configs:
        try:
            program = pipeline.tile_program(asked.kernel, asked.machine, asked.params, config, asked.mode)
        except UserError:
            continue
        found.append(loop_turns(program))
    return found


def compiled(asked: Request) -> WarpProgram:
    """Return the warp program of a question: the pinned tile, else the form and tile that `run` would choose."""
    from heddle import pipeline

    composites.refuse(asked, "a program")
    choice = tile_choice(asked, lambda done, total, what: None)
    machine = choice.machine or asked.machine
    return pipeline.compile_kernel(asked.kernel, machine, asked.params, choice.config, asked.mode)


def write_timeline(asked: Request, row: Mapping[str, Any], path: str) -> int:
    """Simulate the answer `row` once more with an event log, write it as a Perfetto trace, return its slices."""
    from heddle import pipeline, trace

    composites.refuse(asked, "a timeline")
    asked = forms.as_in(asked, row)
    program = compiled(_as_it_is(asked))
    result = pipeline.simulate_program(
        program,
        asked.machine,
        clock_mhz=row["clock_mhz"],
        l2_state=asked.l2_state,
        simulation=row["simulation"]["mode"],
        log="sm0",
        ideal=ideal(asked.oracle, asked.off),
    )
    return trace.write_trace(result, program, asked.machine, path)


def _described(asked: Request, config: Any, clock: float) -> dict[str, Any]:
    """Return what decides a simulation, for its key in the store.

    How far registers are shared decides which kernel runs: one that reads no other subpartition's is the same program.
    """
    native = find_kernel(asked.kernel).native.get(asked.machine.architecture)
    unseen = NOT_SIMULATED if native is None or native.across else NOT_SIMULATED | {"sharing_scope"}
    return {
        "machine": {name: value for name, value in asked.machine.as_dict().items() if name not in unseen},
        "kernel": asked.kernel,
        "mode": asked.mode,
        "params": dict(asked.params),
        "config": config,
        "clock_mhz": clock,
        "l2_state": asked.l2_state,
    }


def _simulated(asked: Request, config: Any, clock: float, *, profile: bool = False) -> dict[str, Any]:
    """Simulate one configuration at one clock, or take the stored row."""

    def simulated() -> dict[str, Any]:
        from heddle import pipeline

        return pipeline.run_once(
            asked.kernel, asked.machine, asked.params, config,
            mode=asked.mode, clock_mhz=clock, l2_state=asked.l2_state, simulation=_simulation(asked), profile=profile,
            ideal=ideal(asked.oracle, asked.off),
        )  # fmt: skip

    options = {"simulation": asked.simulation, "profile": profile, "oracle": asked.oracle, "off": asked.off}
    return {**store.remembered({**_described(asked, config, clock), **options}, simulated), "gpu": asked.machine.name}


def _estimated(asked: Request, config: Any, clock: float) -> dict[str, Any]:
    """Estimate one configuration at one clock from a slice, or take the stored row: cycles and tensor use."""

    def estimate() -> dict[str, Any]:
        from heddle import pipeline
        from heddle.study import slices

        program = pipeline.compile_kernel(asked.kernel, asked.machine, asked.params, config, asked.mode, played=False)
        cycles, use = slices.estimated(program, asked.machine, clock_mhz=clock, l2_state=asked.l2_state)
        return {"cycles": cycles, "tensor_utilization": use}

    return store.remembered({**_described(asked, config, clock), "slice": True}, estimate, store.SEARCH_ROOMS)


def _with_launch(row: dict[str, Any], machine: Machine, launches: int) -> dict[str, Any]:
    """Add launch and drain of so many launches to the time of a row, for cases whose time includes them."""
    time_us = row["time_us"] + launches * (machine.kernel_launch_us + machine.kernel_drain_us)
    return {**row, "time_us": time_us, "tflops": row["tflops"] * row["time_us"] / time_us, "includes_launch": True}
