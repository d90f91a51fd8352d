"""A question to the simulator, checked: which kernel on which machine, with which sizes, tile, clock and state of L2.

`request` checks what a person asked for, `request_of` asks what a measured case asks; `heddle.study.runs` answers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from heddle.errors import UserError, unknown_name
from heddle.kernels import MODES, Kernel
from heddle.kernels.registry import Entry, composite_of, find_entry
from heddle.machine.load import available, with_fiber
from heddle.machine.load import machine as load_machine
from heddle.machine.spec import Machine
from heddle.sim.ideal import ideal, ordered_names
from heddle.study.case_file import Case
from heddle.study.implementations import implementation
from heddle.study.tiles import config_fields

if TYPE_CHECKING:
    from heddle.sim.memory_system import L2State

L2_STATES = ("warm", "cold", "flushed")
SIMULATIONS = ("auto", "representative", "chip")
Simulation = Literal["auto", "representative", "chip"]
LEAST_CLOCK_MHZ = 10.0
"""Below it DRAM would move more in an SM cycle than any queue is made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked question.

    `pins`: fields of the tile configuration; `config`: all of it, nothing is chosen; `library`: whose tiles are tried,
    if not all; `rested`: the chip was idle; `extra_launches`: empty kernels in the time, where it includes launches;
    `simulation` "auto": as `heddle.sim.default_mode` says. `form` "own": of mode fiber only the kernel that uses all
    features of the machine, else the fastest that it can run (`heddle.study.forms`). `plain`: of a sequence of launches
    in mode fiber the machine on which steps run that have no FIBER-native kernel.
    """

    kernel: str
    machine: Machine
    mode: str
    params: Mapping[str, Any]
    pins: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None
    library: str = ""
    clock_mhz: float | None = None
    clock_source: str = ""
    l2_state: L2State = "warm"
    rested: bool = False
    includes_launch: bool = False
    extra_launches: int = 0
    simulation: Simulation = "auto"
    profile: bool = False
    oracle: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    form: Literal["fastest", "own"] = "fastest"
    plain: Machine | None = None


def request(
    kernel: str,
    gpu: str | Machine,
    *,
    mode: str = "simt",
    clock_mhz: float | None = None,
    l2_state: str = "warm",
    simulation: str = "auto",
    profile: bool = False,
    oracle: Collection[str] = (),
    off: Collection[str] = (),
    texts: Mapping[str, Any] | None = None,
) -> Request:
    """Check a question. `texts` are kernel parameters and pinned tile fields, as text or values. Raises UserError.

    `oracle`, `off`: what is idealised (`sim.ideal`); the tile and the clock are those of the machine as it is.

    The modes cuda-native and fiber lay the FIBER features over a machine that has none.
    """
    found = find_entry(kernel)
    machine = plain = load_machine(gpu) if isinstance(gpu, str) else gpu
    _check_names(found, machine, mode, l2_state, simulation)
    _check_mode(found, machine, mode)
    _check_ideal(mode, oracle, off)
    if mode != "simt":
        machine = with_fiber(machine)
    _check_clock(machine, clock_mhz)
    params, pins = _parted(kernel, machine, mode, texts or {})
    return Request(
        kernel=kernel, machine=machine, mode=mode, params=params, pins=pins,
        clock_mhz=clock_mhz, clock_source="given" if clock_mhz else "",
        l2_state=cast("L2State", l2_state), rested=l2_state != "warm",
        simulation=cast("Simulation", simulation), profile=profile,
        oracle=ordered_names(oracle), off=ordered_names(off),
        plain=plain if mode == "fiber" and composite_of(kernel, params) else None,
    )  # fmt: skip


def _check_names(kernel: Entry, machine: Machine, mode: str, l2_state: str, simulation: str) -> None:
    """Raise UserError for an architecture without the kernel, and for unknown words."""
    if machine.architecture not in kernel.architectures:
        names = ", ".join(kernel.architectures)
        raise UserError(f"{kernel.name} is written for {names}; {machine.name} is {machine.architecture}")
    for kind, given, allowed in (
        ("mode", mode, MODES),
        ("L2 state", l2_state, L2_STATES),
        ("simulation", simulation, SIMULATIONS),
    ):
        if given not in allowed:
            raise unknown_name(kind, given, allowed)


def _check_clock(machine: Machine, clock_mhz: float | None) -> None:
    """Raise UserError for a clock at which a machine does not run."""
    if clock_mhz is not None and not LEAST_CLOCK_MHZ <= clock_mhz <= machine.max_clock_mhz:
        raise UserError(
            f"a clock of {clock_mhz:g} MHz is not possible; {machine.name} runs at {LEAST_CLOCK_MHZ:g} to "
            f"{machine.max_clock_mhz:g}"
        )


def _check_ideal(mode: str, oracle: Collection[str], off: Collection[str]) -> None:
    """Raise UserError for unknown oracles and switches, and where they mean nothing."""
    ideal(oracle, off)
    if mode != "simt" and (oracle or off):
        raise UserError(
            f"oracles and switches are about today's machine, not about mode {mode}",
            hint="leave --mode out; what FIBER gives for its features is in `heddle compare --ablate`",
        )


def _check_mode(kernel: Entry, machine: Machine, mode: str) -> None:
    """Raise UserError, with what there is, if a kernel does not exist in a mode."""
    if mode in (modes := kernel.modes_on(machine.architecture)):
        return
    native = ", ".join(name for name in available() if mode in kernel.modes_on(load_machine(name).architecture))
    raise UserError(
        f"{kernel.name} has no kernel of mode {mode} for {machine.name} ({machine.architecture})",
        hint=f"{machine.name} runs it in the modes {', '.join(modes)}; mode {mode} runs on: {native or 'none'}",
    )


def _parted(
    kernel: str, machine: Machine, mode: str, values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part values into checked kernel parameters and pins of tile fields."""
    found = find_entry(kernel)
    names = [parameter.name for parameter in found.parameters]
    params = found.check({name: value for name, value in values.items() if name in names})
    rest = {name: value for name, value in values.items() if name not in names}
    if (composite := composite_of(kernel, params)) is not None:
        steps = [step.name for step in composite.steps(machine, params, mode)]
        for name in rest:
            if name.partition(".")[0] not in steps or "." not in name:
                raise unknown_name(f"parameter of {kernel}", name, [*names, *(f"{step}.FIELD" for step in steps)])
    elif rest and isinstance(found, Kernel):
        fields = config_fields(found.candidates(machine, params, mode))
        listed = found.native_on(machine).tile if mode == "fiber" else found.tile
        tile = [parameter.name for parameter in listed if parameter.name in fields]
        for name in rest:
            if name not in tile:
                raise unknown_name(f"parameter of {kernel}", name, [*names, *tile])
    return params, rest


def request_of(case: Case) -> Request:
    """Return the question that a measured case asks: sizes, L2 state, clock, launch, the tile where it is known."""
    found, known = find_entry(case.kernel), implementation(case.family)
    l2_state = known.l2_state or case.l2_state
    names = {parameter.name for parameter in found.parameters}
    if case.direction != "fwd" and "direction" not in names:
        raise UserError(f"{case.kernel} has no direction; the case is of {case.direction}", where=case.where)
    given: dict[str, Any] = {**case.sizes, "dtype": case.dtype, "causal": int(case.causal), "direction": case.direction}
    asked = request(
        case.kernel,
        case.gpu,
        clock_mhz=case.clock_mhz,
        l2_state=l2_state,
        texts={**{n: v for n, v in given.items() if n in names}, **known.pins},
    )
    return dataclasses.replace(
        asked,
        library=known.library,
        rested=l2_state != "warm" if known.rested is None else known.rested,
        includes_launch=case.includes_launch if known.includes_launch is None else known.includes_launch,
        extra_launches=known.extra_launches,
        simulation="chip" if asked.params.get("seqlen_kv", math.inf) <= known.chip_keys else "auto",
        clock_source="stated by the case" if case.clock_mhz else "",
    )
