"""Measure how often each branch of the engine's core goes which way: `python benchmarks/profile_core.py`.

Writes `src/heddle/sim/core/profile.txt`, by which LLVM places and inlines the core's code. Run it after a change of the
core: functions that have changed are compiled without a profile until then. No result depends on it, only speed.
"""

from collections.abc import Iterator
from typing import Any

from heddle.ir.warp import WarpProgram
from heddle.machine import Machine, machine
from heddle.pipeline import compile_kernel
from heddle.sim import Sim
from heddle.sim.core_loader import ENTRIES, PROFILE, Core
from heddle.sim.ideal import ideal
from heddle.sim.native import build_counting
from heddle.sim.native.profile import profile_text
from heddle.study.bench_fiber import weave
from heddle.study.bench_programs import fan

ATTENTION = {"batch": 1, "heads_q": 2, "heads_kv": 2, "seqlen_q": 1024, "seqlen_kv": 1024, "head_dim": 128}
GEMM = {"m": 1024, "n": 1024, "k": 1024, "dtype": "fp16"}
GPUS = ("a100", "h100", "b200")


def runs() -> Iterator[tuple[WarpProgram, Machine, dict[str, Any]]]:
    """Yield programs, machines and options of `Sim`: what the engine is used for."""
    yield fan(64), machine("h100"), {"mode": "sm", "fast_forward": False}
    yield weave(), machine("h100+fiber"), {"mode": "sm", "fast_forward": False}
    for gpu in GPUS:
        for device, mode in ((machine(gpu), "simt"), (machine(f"{gpu}+fiber"), "fiber")):
            yield compile_kernel("attention", device, ATTENTION, mode=mode), device, {"mode": "representative"}
        gemm = compile_kernel("gemm", machine(gpu), GEMM)
        yield gemm, machine(gpu), {"mode": "chip"}
        yield gemm, machine(gpu), {"mode": "representative", "l2_state": "flushed"}
    yield compile_kernel("attention", machine("h100"), ATTENTION), machine("h100"), {"ideal": ideal(("dp", "fs"))}


def main() -> None:
    """Run all of it in a core that counts, and write the profile."""
    functions, counts = build_counting(ENTRIES)
    for program, device, options in runs():
        sim = Sim(device, program, **options)
        sim._core = Core(dict(functions))
        sim.run()
        print(f"{program.name}, {device.name}: {sim.cycle} cycles")
    PROFILE.write_text(profile_text(counts()), encoding="utf-8")
    print(f"wrote {len(PROFILE.read_text(encoding='utf-8').splitlines())} functions")


if __name__ == "__main__":
    main()
