"""Decoding on B200: is a missing wait or arrival of its roles found?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import pytest

from heddle import interp, pipeline, sim
from heddle.errors import UserError
from heddle.interp import random_schedule
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.study.requests import Request, request
from native_mutants import mutants

SIZES = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 1800, "num_splits": 1, "head_dim": 64}
"""Fifteen blocks of keys, K and V, in twelve stages: what a second use needs is found too."""
HARMLESS = {
    "softmax: SYNCS.TRYWAIT stats0_empty 1": "the first block gives no factor, so none is overwritten; two blocks "
    "would be taken for one only if a correction warp stood still while the matrix unit works through a block",
}
"""Mutants that are right under `SCHEDULES` random schedules, by role, instruction and barrier, and which of these."""
SCHEDULES = 20


@pytest.fixture(scope="module")
def asked() -> Request:
    found = request("decode_split_fa4", "b200", texts=SIZES)
    return dataclasses.replace(found, machine=found.machine.replace(sms=2))


@pytest.fixture(scope="module")
def program(asked: Request) -> WarpProgram:
    return pipeline.compile_kernel(asked.kernel, asked.machine, asked.params)


def named(program: WarpProgram) -> Iterator[tuple[str, WarpProgram]]:
    """Yield all mutants by role, what is missing, and which of its kind it is."""
    seen: Counter[str] = Counter()
    for where, mutant in mutants(program):
        pc = int(where.partition(" ")[0])
        row = program.instructions[pc]
        role = max((role for role in program.roles if role.entry <= pc), key=lambda role: role.entry).name
        kind = f"{role}: {row.op} {row.barrier.name if row.barrier else row.barrier_id}"
        seen[kind] += 1
        yield f"{kind} {seen[kind]}", mutant


def found_by(mutant: WarpProgram, asked: Request, log_of: sim.SimResult | None = None) -> str:
    """Return what finds a mutant: that it does not end, a hazard, wrong numbers; nothing if it survives."""
    inputs, outputs = find_kernel(asked.kernel).reference(asked.params)
    try:
        report = interp.check(mutant, asked.machine, inputs, outputs, result=log_of)
    except UserError:
        return "run"
    return "hazard" if report.hazards else "" if report.ok else "numbers"


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_reported(asked: Request, program: WarpProgram) -> None:
    every = dict(named(program))
    assert len(every) > 30
    survivors = {name for name, mutant in every.items() if not found_by(mutant, asked)}
    assert len(survivors) <= 0.05 * len(every)
    assert survivors == set(HARMLESS)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", HARMLESS)
def test_a_survivor_is_right_under_random_schedules(name: str, asked: Request, program: WarpProgram) -> None:
    mutant = dict(named(program))[name]
    run = sim.simulate(program, asked.machine, mode="chip", log="all", fast_forward=False)
    for seed in range(1, SCHEDULES + 1):
        untimed = dataclasses.replace(run, log=random_schedule(mutant, seed))
        assert not found_by(mutant, asked, untimed), seed
