"""The speed of Heddle itself: warp instructions a second of CPU time, and the times of a simulation and the compiler.

The speed is that of the event loop, with the fast-forward off, so that every instruction is issued. What a simulation
takes from the program to the result, set-up and fast-forward included, stands beside it. Thread CPU time, median of
several runs after one that compiles, so that a busy computer changes little. Speeds depend on the computer; the ratios
to `fan` do not depend on it much and are what to compare between commits.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from heddle import pipeline
from heddle.ir.warp import WarpProgram
from heddle.machine import Machine, machine
from heddle.sim import Sim
from heddle.sim.memory_system import Mode
from heddle.study.bench_fiber import weave
from heddle.study.bench_programs import fan
from heddle.study.pool import Progress

GEMM_SIZE = 4096
GPUS = ("a100", "h100", "b200")


def bench(repeats: int = 5, *, progress: Progress | None = None) -> dict[str, Any]:
    """Return the speed of the engine on `fan`, on `weave` (all of FIBER) and on GEMM, and of the compiler on GEMM."""
    report = progress or (lambda done, total, what: None)
    total = 2 + 2 * len(GPUS)
    report(0, total, "fan")
    # without port contention `fan` issues 2.3 instructions a cycle: the speed of issuing, not of waiting
    engine = [_engine("fan", fan(), machine("h100").replace(tensor_port_share=0.0), "sm", repeats)]
    report(1, total, "weave")
    engine.append(_engine("weave", weave(), machine("h100+fiber"), "sm", repeats))
    compiler = []
    for index, gpu in enumerate(GPUS):
        report(2 + 2 * index, total, f"compiler, {gpu}")
        program, cpu_s = _compiled(gpu, repeats)
        compiler.append({"name": f"gemm {gpu}", "cpu_s": cpu_s, "instructions": len(program.instructions)})
        report(3 + 2 * index, total, f"gemm, {gpu}")
        engine.append(_engine(f"gemm {gpu}", program, machine(gpu), "representative", repeats))
    for row in engine:
        row["ratio"] = row["instructions_per_s"] / engine[0]["instructions_per_s"]
    return {"repeats": repeats, "engine": engine, "compiler": compiler}


def _compiled(gpu: str, repeats: int) -> tuple[WarpProgram, float]:
    """Compile the first candidate of a square GEMM."""
    device = machine(gpu)
    params = {"m": GEMM_SIZE, "n": GEMM_SIZE, "k": GEMM_SIZE, "dtype": "fp16"}
    return _median(lambda: _timed(lambda: pipeline.compile_kernel("gemm", device, params)), repeats)


def _engine(name: str, program: WarpProgram, device: Machine, mode: Mode, repeats: int) -> dict[str, Any]:
    """Measure the event loop and a whole simulation of one program."""
    sim, loop_s = _median(lambda: _loop(program, device, mode), repeats)
    clock_mhz = device.max_clock_mhz
    _, whole_s = _median(
        lambda: _timed(lambda: pipeline.simulate_program(program, device, clock_mhz=clock_mhz, simulation=mode)),
        repeats,
    )
    issued = sim.result().warp_instructions
    return {
        "name": name,
        "loop_cpu_s": loop_s,
        "warp_instructions": issued,
        "instructions_per_s": issued / loop_s,
        "simulate_cpu_s": whole_s,
        "cycles": sim.result().cycles,
    }


def _loop(program: WarpProgram, device: Machine, mode: Mode) -> tuple[Sim, float]:
    """Run a simulation to its end without the fast-forward; return it and the CPU time, set-up not counted."""
    sim = Sim(device, program, mode=mode, fast_forward=False)
    return _timed(lambda: (sim, sim.run())[0])


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of `work` and its thread CPU time."""
    begin = time.thread_time()
    result = work()
    return result, time.thread_time() - begin


def _median(work: Callable[[], tuple[Any, float]], repeats: int) -> tuple[Any, float]:
    """Return a result and the median time of `work`; the first run, which compiles, does not count."""
    work()
    runs = [work() for _ in range(repeats)]
    return runs[-1][0], statistics.median(cpu_s for _, cpu_s in runs)
