"""The whole flow in one screen: kernel -> tile program -> passes -> warp program -> simulate -> metrics.

Start reading here, then follow a function into its room. Clock, tile choice and the result store are searches over
this flow and live one room further, in `heddle.study`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from heddle import metrics, sim
from heddle.ir.tile import TileProgram
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine.spec import Machine
from heddle.metrics.provenance import machine_hash
from heddle.passes.cuda_native import cuda_native
from heddle.passes.manager import LAST_WORD, run_passes, without_last_word
from heddle.sim.ideal import AS_IT_IS, Ideal
from heddle.sim.memory_system import L2State, Mode
from heddle.sim.result import SimResult
from heddle.sim.session import Log

Params = Mapping[str, Any]
KEPT_PROGRAMS = 4
_COMPILED: dict[tuple[Any, ...], WarpProgram] = {}


def tile_program(kernel: str, machine: Machine, params: Params, config: Any = None, mode: str = "simt") -> TileProgram:
    """Write: run the kernel's Python once, which records tiles, roles, loops, copies and matrix operations."""
    return find_kernel(kernel).build(machine, params, config, mode)


def warp_program(program: TileProgram, machine: Machine, mode: str = "", *, played: bool = True) -> WarpProgram:
    """Compile: select instructions of the generation, allocate registers, set stall counts and dependence counters.

    `mode`: that of the tile program if empty; "cuda-native" turns a program of mode simt into one of that mode.
    `played`: in mode fiber the last pass plays a schedule of the wefts, which takes most of the time.
    """
    compiled = run_passes(program, machine, passes=None if played else without_last_word(program.mode))
    return cuda_native(compiled) if mode == "cuda-native" else compiled


def compile_kernel(
    kernel: str, machine: Machine, params: Params, config: Any = None, mode: str = "simt", *, played: bool = True
) -> WarpProgram:
    """Write and compile a kernel of the registry; `config` is one of its candidates, the first by default.

    The last programs are kept: a search for the clock simulates one program several times. `played`: false for an
    estimate that compares configurations; what is asked for again without it is played then.
    """
    played = played or mode != "fiber"  # other programs have nothing to play
    key = (kernel, mode, repr(config), tuple(sorted(params.items())), machine_hash(machine))
    if (key, True) in _COMPILED:
        return _COMPILED[key, True]
    if (key, False) not in _COMPILED:
        options = {} if played else {"played": False}
        _keep(
            (key, played), warp_program(tile_program(kernel, machine, params, config, mode), machine, mode, **options)
        )
    elif played:
        _keep((key, True), LAST_WORD.run(_COMPILED.pop((key, False)), machine))
    return _COMPILED[key, played]


def _keep(key: tuple[Any, ...], program: WarpProgram) -> None:
    while len(_COMPILED) >= KEPT_PROGRAMS:
        del _COMPILED[next(iter(_COMPILED))]
    _COMPILED[key] = program


def simulate_program(
    program: WarpProgram,
    machine: Machine,
    *,
    clock_mhz: float,
    l2_state: L2State = "warm",
    simulation: Mode = "representative",
    log: Log = "off",
    ideal: Ideal = AS_IT_IS,
) -> SimResult:
    """Simulate: issue every warp instruction, cycle by cycle (docs/reference/engine.md)."""
    return sim.simulate(program, machine, clock_mhz=clock_mhz, l2_state=l2_state, mode=simulation, log=log, ideal=ideal)


def explain(
    result: SimResult, program: WarpProgram, machine: Machine, *, clock_mhz: float, wall_s: float, profile: bool = False
) -> dict[str, Any]:
    """Explain: time, tensor use, stalls, pipes and traffic as the result JSON (docs/reference/results.md)."""
    return metrics.result_json(
        result, program, machine, kernel=program.name, clock_mhz=clock_mhz, wall_s=wall_s, profile=profile
    )


def run_once(
    kernel: str,
    machine: Machine,
    params: Params,
    config: Any = None,
    *,
    mode: str = "simt",
    clock_mhz: float,
    l2_state: L2State = "warm",
    simulation: Mode = "representative",
    profile: bool = False,
    ideal: Ideal = AS_IT_IS,
) -> dict[str, Any]:
    """Do all of it once, at one clock and for one configuration, and return the result JSON."""
    program = compile_kernel(kernel, machine, params, config, mode)
    begin = time.perf_counter()
    result = simulate_program(
        program, machine, clock_mhz=clock_mhz, l2_state=l2_state, simulation=simulation, ideal=ideal
    )
    wall_s = time.perf_counter() - begin
    row = explain(result, program, machine, clock_mhz=clock_mhz, wall_s=wall_s, profile=profile)
    return {**row, "kernel": kernel}
