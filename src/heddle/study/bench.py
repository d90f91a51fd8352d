"""The speed of Heddle itself: warp instructions a second of CPU time, and the time of the compiler.

Thread CPU time, median of several runs after one that compiles, so that a busy computer changes little. Speeds depend
on the computer; the ratios to `fan` do not depend on it much and are what to compare between commits.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from heddle import pipeline
from heddle.ir.warp import WarpProgram
from heddle.machine import Machine, machine
from heddle.sim.memory_system import Mode
from heddle.study.bench_programs import fan
from heddle.study.pool import Progress

GEMM_SIZE = 4096
GPUS = ("a100", "h100", "b200")


def bench(repeats: int = 5, *, progress: Progress | None = None) -> dict[str, Any]:
    """Return the speed of the engine on `fan` and on GEMM, and of the compiler on GEMM, on every generation."""
    report = progress or (lambda done, total, what: None)
    total = 1 + 2 * len(GPUS)
    report(0, total, "fan")
    # without port contention `fan` issues 2.3 instructions a cycle: the speed of issuing, not of waiting
    engine = [_engine("fan", fan(), machine("h100").replace(tensor_port_share=0.0), "sm", repeats)]
    compiler = []
    for index, gpu in enumerate(GPUS):
        report(1 + 2 * index, total, f"compiler, {gpu}")
        program, cpu_s = _compiled(gpu, repeats)
        compiler.append({"name": f"gemm {gpu}", "cpu_s": cpu_s, "instructions": len(program.instructions)})
        report(2 + 2 * index, total, f"gemm, {gpu}")
        engine.append(_engine(f"gemm {gpu}", program, machine(gpu), "representative", repeats))
    for row in engine:
        row["ratio"] = row["instructions_per_s"] / engine[0]["instructions_per_s"]
    return {"repeats": repeats, "engine": engine, "compiler": compiler}


def _compiled(gpu: str, repeats: int) -> tuple[WarpProgram, float]:
    """Compile the first candidate of a square GEMM."""
    device = machine(gpu)
    params = {"m": GEMM_SIZE, "n": GEMM_SIZE, "k": GEMM_SIZE, "dtype": "fp16"}
    return _median(lambda: pipeline.compile_kernel("gemm", device, params), repeats)


def _engine(name: str, program: WarpProgram, device: Machine, mode: Mode, repeats: int) -> dict[str, Any]:
    clock_mhz = device.max_clock_mhz
    result, cpu_s = _median(
        lambda: pipeline.simulate_program(program, device, clock_mhz=clock_mhz, simulation=mode), repeats
    )
    simulated = result.warp_instructions
    return {
        "name": name,
        "cpu_s": cpu_s,
        "warp_instructions": simulated,
        "instructions_per_s": simulated / cpu_s,
        "cycles": result.cycles,
        "fast_forwarded_cycles": result.fast_forwarded_cycles,
    }


def _median(work: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """Return the result of `work` and the median of its thread CPU time; the first run, which compiles, does not
    count.
    """
    result = work()
    times = []
    for _ in range(repeats):
        begin = time.thread_time()
        result = work()
        times.append(time.thread_time() - begin)
    return result, statistics.median(times)
