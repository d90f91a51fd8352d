"""Is every missing bind, wait and arrival of the FIBER-native W4A16 kernels found?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from heddle import pipeline, sim
from heddle.interp import random_schedule
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.kernels.w4a16 import sm90_fiber_config, sm100_fiber_config
from heddle.kernels.w4a16.sm80_fiber_config import FiberW480Config
from heddle.machine import Machine
from heddle.study.requests import request
from native_mutants import killed_by, mutants

SIZES = {"m": 64, "n": 256, "k": 512}
"""Two tiles of B200, which has code of its own for the second of an item."""
CASES: dict[tuple[str, str], Any] = {
    ("a100", "awq"): FiberW480Config(tile_m=64, tile_n=64, stages=2),
    ("a100", "aqlm_1x16"): FiberW480Config(tile_m=64, tile_n=64, stages=2),
    ("a100", "aqlm_2x8"): FiberW480Config(tile_m=64, tile_n=64, stages=2),
    ("h100", "awq"): sm90_fiber_config.Turned90Config(tokens=64, stages=2, groups=2),
    ("h100", "aqlm_1x16"): sm90_fiber_config.Turned90Config(tokens=128, stages=2, groups=1),
    ("h100", "aqlm_2x8"): sm90_fiber_config.Turned90Config(tokens=64, stages=2, groups=2),
    ("b200", "awq"): sm100_fiber_config.Turned100Config(tokens=64, stages=2),
    ("b200", "aqlm_1x16"): sm100_fiber_config.Turned100Config(tokens=64, stages=2),
    ("b200", "aqlm_2x8"): sm100_fiber_config.Turned100Config(tokens=64, stages=2),
}
"""Configurations of small tiles: one or two of them on one SM."""
SCHEDULES = 20
"""Random schedules under which a survivor has to be right."""
EVERY = 2
"""Of the mutants that are tried."""


def one_sm(gpu: str) -> Machine:
    """Return the GPU with FIBER and one SM."""
    return dataclasses.replace(request("w4a16", gpu, mode="fiber", texts=SIZES).machine, sms=1)


def checked(program: WarpProgram, machine: Machine, params: dict[str, Any], seed: int = 0) -> CheckReport:
    """Run and compare with float64; `seed`: of a random schedule in place of the engine's order."""
    result = sim.simulate(program, machine, mode="chip", log="all", fast_forward=False)
    if seed:
        result.log = random_schedule(program, seed)
    inputs, outputs = find_kernel("w4a16").reference(params)
    return check(program, machine, inputs, outputs, result=result)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("gpu", "scheme"), CASES)
def test_mutants_are_found(gpu: str, scheme: str) -> None:
    machine, params = one_sm(gpu), {**SIZES, "scheme": scheme}
    program = pipeline.compile_kernel("w4a16", machine, params, CASES[gpu, scheme], "fiber")
    chosen = dict(list(mutants(program))[::EVERY])
    fates = {name: killed_by(mutant, machine, lambda m: checked(m, machine, params)) for name, mutant in chosen.items()}

    def harmless(mutant: WarpProgram) -> bool:
        return all(checked(mutant, machine, params, seed).ok for seed in range(1, SCHEDULES + 1))

    survivors = [name for name, fate in fates.items() if fate not in ("verifier", "hazard", "run")]
    left = [name for name in survivors if not harmless(chosen[name])]
    assert len(fates) > 20
    assert len(left) <= 0.05 * len(fates), left
