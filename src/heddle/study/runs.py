"""One question, one answer: which tile, at which clock, how long. Every simulation on the way goes through the store.

`request` checks what a person asked for; `run` chooses the tile, settles the clock and returns the result JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from heddle.errors import UserError, unknown_name
from heddle.kernels.registry import find_kernel
from heddle.machine.load import machine as load_machine
from heddle.machine.spec import Machine
from heddle.metrics.provenance import machine_hash
from heddle.study import store
from heddle.study.case_file import Case
from heddle.study.choose import Choice, choose, shortlist
from heddle.study.clock import AtClock, settle
from heddle.study.implementations import implementation
from heddle.study.tiles import config_fields, pinned

if TYPE_CHECKING:
    from heddle.ir.warp import WarpProgram
    from heddle.sim.memory_system import L2State, Mode
    from heddle.study.pool import Progress

NOT_SIMULATED = frozenset(
    {"description", "tensor_peak_clock_mhz", "tdp_watts", "kernel_launch_us", "kernel_drain_us"}
    | {"clock_burst_mhz", "clock_sustained_mhz", "clock_time_constant_ms"}
)
"""Machine fields that no simulation at a given clock sees: a change of them asks for no new simulation."""
L2_STATES = ("warm", "cold", "flushed")
SIMULATIONS = ("representative", "chip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked question.

    `pins`: fields of the tile configuration; `config`: all of it, nothing is chosen; `rested`: the chip was idle.
    """

    kernel: str
    machine: Machine
    mode: str
    params: Mapping[str, Any]
    pins: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None
    clock_mhz: float | None = None
    clock_source: str = ""
    l2_state: L2State = "warm"
    rested: bool = False
    includes_launch: bool = False
    simulation: Mode = "representative"
    profile: bool = False


def request(
    kernel: str,
    gpu: str | Machine,
    *,
    mode: str = "simt",
    clock_mhz: float | None = None,
    l2_state: str = "warm",
    simulation: str = "representative",
    profile: bool = False,
    texts: Mapping[str, Any] | None = None,
) -> Request:
    """Check a question. `texts` are kernel parameters and pinned tile fields, as text or values. Raises UserError."""
    found = find_kernel(kernel)
    machine = load_machine(gpu) if isinstance(gpu, str) else gpu
    if machine.architecture not in found.architectures:
        names = ", ".join(found.architectures)
        raise UserError(f"{kernel} is written for {names}; {machine.name} is {machine.architecture}")
    for kind, given, allowed in (
        ("mode", mode, found.modes),
        ("L2 state", l2_state, L2_STATES),
        ("simulation", simulation, SIMULATIONS),
    ):
        if given not in allowed:
            raise unknown_name(kind, given, allowed)
    if clock_mhz is not None and not 0 < clock_mhz <= machine.max_clock_mhz:
        raise UserError(
            f"a clock of {clock_mhz:g} MHz is not possible; {machine.name} runs at up to {machine.max_clock_mhz:g}"
        )
    params, pins = _parted(kernel, machine, texts or {})
    return Request(
        kernel=kernel,
        machine=machine,
        mode=mode,
        params=params,
        pins=pins,
        clock_mhz=clock_mhz,
        clock_source="given" if clock_mhz else "",
        l2_state=cast("L2State", l2_state),
        rested=l2_state != "warm",
        simulation=cast("Mode", simulation),
        profile=profile,
    )


def _parted(kernel: str, machine: Machine, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part values into checked kernel parameters and pins of tile fields."""
    found = find_kernel(kernel)
    names = [parameter.name for parameter in found.parameters]
    params = found.check({name: value for name, value in values.items() if name in names})
    rest = {name: value for name, value in values.items() if name not in names}
    if rest:
        tile = config_fields(found.candidates(machine, params))
        for name in rest:
            if name not in tile:
                raise unknown_name(f"parameter of {kernel}", name, [*names, *tile])
    return params, rest


def request_of(case: Case) -> Request:
    """Return the question that a measured case asks: sizes, L2 state, clock, launch, the tile where it is known."""
    found = find_kernel(case.kernel)
    names = {parameter.name for parameter in found.parameters}
    given: dict[str, Any] = {**case.sizes, "dtype": case.dtype, "causal": int(case.causal), "direction": case.direction}
    asked = request(
        case.kernel,
        case.gpu,
        clock_mhz=case.clock_mhz,
        l2_state=case.l2_state,
        texts={**{n: v for n, v in given.items() if n in names}, **implementation(case.family).pins},
    )
    source = "stated by the case" if case.clock_mhz else ""
    return dataclasses.replace(asked, rested=case.gaps, includes_launch=case.includes_launch, clock_source=source)


def run(asked: Request, *, progress: Progress | None = None) -> dict[str, Any]:
    """Answer a question: choose the tile, settle the clock, simulate; the result JSON with `choice` added."""
    report = progress or (lambda done, total, what: None)
    description = {f.name: getattr(asked, f.name) for f in dataclasses.fields(asked)} | {"answer": True}
    return store.remembered(description, lambda: _answer(asked, report), store.SEARCH_ROOMS)


def _answer(asked: Request, report: Progress) -> dict[str, Any]:
    machine = asked.machine
    choice = tile_choice(asked, report)

    def at(clock: float) -> AtClock:
        row = _simulated(asked, choice.config, clock)
        return AtClock(row["cycles"], row["tensor_utilization"])

    clock = asked.clock_mhz or settle(machine, at, rested=asked.rested)
    row = _simulated(asked, choice.config, clock, profile=asked.profile)
    row["provenance"]["clock_source"] = asked.clock_source or "clock model"
    row["provenance"]["machine_hash"] = machine_hash(machine)
    row["choice"] = {"cycles": dict(choice.cycles), "refused": dict(choice.refused), "clock_mhz": choice_clock(asked)}
    return _with_launch(row, machine) if asked.includes_launch else row


def choice_clock(asked: Request) -> float:
    """Return the clock at which tiles are compared: the given one, else a fixed one, whatever the clock model says."""
    return asked.clock_mhz or asked.machine.tensor_peak_clock_mhz


def tile_choice(asked: Request, report: Progress) -> Choice:
    """Choose among the kernel's candidates that agree with the pins."""
    if asked.config is not None:
        return Choice(config=asked.config)
    found = find_kernel(asked.kernel)
    candidates = pinned(found.candidates(asked.machine, asked.params), asked.pins)
    tried = shortlist(asked.kernel, asked.machine, asked.params, candidates)
    done = 0

    def cycles_of(config: Any) -> int:
        nonlocal done
        report(done, len(tried), "tile")
        done += 1
        # chip mode is for the answer, not for the choice
        quick = dataclasses.replace(asked, simulation="representative")
        return int(_simulated(quick, config, choice_clock(asked))["cycles"])

    return choose(tried, cycles_of)


def compiled(asked: Request) -> WarpProgram:
    """Return the warp program of a question: the pinned tile, else the one that `run` would choose."""
    from heddle import pipeline  # imported where something is compiled: a stored answer needs no compiler

    choice = tile_choice(asked, lambda done, total, what: None)
    return pipeline.compile_kernel(asked.kernel, asked.machine, asked.params, choice.config)


def write_timeline(asked: Request, row: Mapping[str, Any], path: str) -> int:
    """Simulate the answer `row` once more with an event log, write it as a Perfetto trace, return its slices."""
    from heddle import pipeline, trace

    program = compiled(asked)
    result = pipeline.simulate_program(
        program,
        asked.machine,
        clock_mhz=row["clock_mhz"],
        l2_state=asked.l2_state,
        simulation=asked.simulation,
        log="sm0",
    )
    return trace.write_trace(result, program, asked.machine, path)


def _simulated(asked: Request, config: Any, clock: float, *, profile: bool = False) -> dict[str, Any]:
    """Simulate one configuration at one clock, or take the stored row."""

    def simulated() -> dict[str, Any]:
        from heddle import pipeline

        return pipeline.run_once(
            asked.kernel, asked.machine, asked.params, config,
            clock_mhz=clock, l2_state=asked.l2_state, simulation=asked.simulation, profile=profile,
        )  # fmt: skip

    description = {
        "machine": {name: value for name, value in asked.machine.as_dict().items() if name not in NOT_SIMULATED},
        "kernel": asked.kernel,
        "mode": asked.mode,
        "params": dict(asked.params),
        "config": config,
        "clock_mhz": clock,
        "l2_state": asked.l2_state,
        "simulation": asked.simulation,
        "profile": profile,
    }
    return store.remembered(description, simulated)


def _with_launch(row: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Add launch and drain to the time of a row, for cases whose time includes them."""
    time_us = row["time_us"] + machine.kernel_launch_us + machine.kernel_drain_us
    return {**row, "time_us": time_us, "tflops": row["tflops"] * row["time_us"] / time_us, "includes_launch": True}
