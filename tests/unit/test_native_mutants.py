"""Is every missing bind, wait and arrival of the FIBER-native products found, with bits or with barriers alone?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.machine import machine
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate, mutants, rejected

GEMM = {"m": 256, "n": 320, "k": 128, "tile_n": 160, "stages": 2, "cluster": 1, "groups": 2}
W4 = {"m": 64, "n": 128, "k": 256, "group": 64, "tile_m": 64, "tile_n": 64, "stages": 2}
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], int]] = {
    "AWQ, A100": ("w4a16", "a100", W4, {}, 2),
    "GEMM by barriers, H100": ("gemm", "h100", GEMM, dict(STEPS[1].changes), 1),
    "GEMM through shared memory, H100": ("gemm", "h100", GEMM, dict(STEPS[0].changes), 1),
}
"""Kernel, GPU, parameters, what the machine lacks, and of which every so many mutants are run."""
QUICK = 12
"""In the quick test every so many of the mutants that the verifier has to reject."""
ACCEPTED = 0.05


def asked(name: str) -> Request:
    """Return the question of a case, on one SM."""
    kernel, gpu, params, changes, _ = CASES[name]
    return request(kernel, machine(f"{gpu}+fiber").replace(sms=1, **changes), mode="fiber", texts=params)


def test_the_verifier_rejects_mutants_of_the_bits() -> None:
    of = asked("AWQ, A100")
    of_bits = [found for found in mutants(compiled(of)) if "BAR" not in found[0] and "DEPBAR)" not in found[0]]
    assert len(of_bits) > 40
    assert [name for name, program in of_bits[::QUICK] if not rejected(program, of.machine)] == []


def test_a_read_of_shared_registers_that_no_barrier_orders_is_a_hazard() -> None:
    """The place for sums is given back before it is written again; without the wait it may be overwritten unread."""
    of = asked("GEMM by barriers, H100")
    program = compiled(of)
    found = dict(mutants(program))
    waits = [
        name for name in found
        if (barrier := program.instructions[int(name.split()[0])].barrier) and barrier.name == "total_0_empty"
        and "TRYWAIT" in name
    ]  # fmt: skip
    assert [fate(found[name], of) for name in waits] == ["hazard"] * len(waits) != []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_found() -> None:
    fates: dict[str, str] = {}
    for name, (*_, every) in CASES.items():
        of = asked(name)
        chosen = list(mutants(compiled(of)))[::every]
        fates |= {f"{name}: {what}": fate(program, of) for what, program in chosen}
    left = [name for name, found in fates.items() if found not in ("verifier", "run", "hazard")]
    assert len(left) <= ACCEPTED * len(fates), left
