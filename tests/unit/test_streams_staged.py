"""Are norm, rotation and gating right without full and empty bits, and does each weft work on what it has copied?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from heddle import pipeline, sim
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels._staged import StagedConfig, StagedNeeds, candidates, staged_items
from heddle.kernels._streams import covering_bytes
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from native_mutants import mutants, rejected

LITERAL, PHASED = STEPS[:2]
NORM = {"rows": 27, "hidden": 512, "groups": 2, "stages": 2}
ROPE = {"rows": 70, "heads_q": 5, "heads_kv": 4, "head_dim": 64, "groups": 1, "stages": 3}
HEADS = {"rows": 37, "heads_q": 4, "heads_kv": 2, "head_dim": 128, "groups": 2, "stages": 2}
GATES = {"rows": 27, "cols": 1288, "groups": 2, "stages": 3}


def asked(kernel: str, gpu: str = "a100", step: int = 0, **texts: Any) -> Request:
    """Ask for a kernel on a GPU of two SMs with the features of a step."""
    return request(kernel, STEPS[step].machine(machine(gpu)).replace(sms=2), mode="fiber", texts=texts)


def program(kernel: str, **texts: Any) -> tuple[WarpProgram, Request]:
    """Return the warp program, and what was asked."""
    found = asked(kernel, **texts)
    tiles = find_kernel(kernel).native_on(found.machine)
    config = StagedConfig(groups=texts["groups"], stages=texts["stages"])
    problem = find_kernel(kernel).problem(found.params)
    return pipeline.warp_program(tiles.build(problem, config, found.machine, {}), found.machine, "fiber"), found


@pytest.mark.parametrize(
    ("kernel", "gpu", "step", "sizes"),
    [
        ("rmsnorm", "h100", 0, NORM),
        ("rmsnorm", "a100", 1, NORM | {"hidden": 520, "residual": 1, "dtype": "bf16"}),  # weights of no whole blocks
        ("rmsnorm", "b200", 0, {"rows": 3, "hidden": 1224, "groups": 1, "stages": 2}),
        ("rope", "a100", 0, ROPE | {"dtype": "bf16"}),
        ("rope", "b200", 1, HEADS),
        ("silu_mul", "a100", 1, GATES),
        ("silu_mul", "h100", 0, {"rows": 1, "cols": 8, "groups": 1, "stages": 2}),
    ],
)
def test_odd_sizes_are_right(kernel: str, gpu: str, step: int, sizes: dict[str, Any]) -> None:
    row = check(asked(kernel, gpu, step, **sizes))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("kernel", ["rmsnorm", "rope", "silu_mul"])
def test_every_step_has_a_kernel(kernel: str) -> None:
    for gpu in ("a100", "h100", "b200"):
        for step in STEPS:
            at = step.machine(machine(gpu))
            assert not find_kernel(kernel).native_on(at).lacks(at)


def test_wefts_meet_once_for_the_weights_and_never_again() -> None:
    rows = program("rmsnorm", **NORM)[0].instructions
    assert sum(row.op.startswith("BAR") for row in rows) == NORM["groups"]
    assert not [row for row in program("silu_mul", **GATES)[0].instructions if row.op.startswith(("BAR", "SYNCS"))]


@pytest.mark.parametrize(("kernel", "sizes"), [("rmsnorm", NORM), ("rope", HEADS)])
def test_the_engines_agree_on_every_stall(kernel: str, sizes: dict[str, Any]) -> None:
    compiled, found = program(kernel, **sizes)
    ours, plain = (
        sim.simulate(compiled, found.machine, mode="chip", engine=name, fast_forward=False)
        for name in ("compiled", "reference")
    )
    assert ours.cycles == plain.cycles
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "sizes"), [("rmsnorm", NORM), ("rope", HEADS), ("silu_mul", GATES)])
def test_a_run_shows_every_mutant(kernel: str, sizes: dict[str, Any]) -> None:
    """Waits for copies, and the meeting for the weights."""
    compiled, found = program(kernel, **sizes)
    every = list(mutants(compiled))
    assert every
    assert [name for name, mutant in every if not rejected(mutant, found.machine) and _passes(mutant, found)] == []


def _passes(mutant: WarpProgram, found: Request) -> bool:
    try:
        row = check(found, program=mutant)
    except UserError:
        return False
    return bool(row["passed"] and not row["hazards"])


def test_every_unit_is_copied_once_and_worked_on_once() -> None:
    config, gpu = StagedConfig(groups=2, stages=3), machine("a100").replace(sms=3)
    items, threads = staged_items({"row": range(100, 123)}, {"row": -1}, config, gpu)
    firsts = [index for index, first in enumerate(items["first"]) if first]
    copied = [items[f"row_{g}_ahead"][i] for g in range(2) for i in range(len(items["first"]))]
    copied += [items[f"row_{g}_start{stage}"][i] for g in range(2) for stage in range(2) for i in firsts]
    worked = [items[f"row_{g}_now"][i] for g in range(2) for i in range(len(items["first"]))]
    assert threads == len(firsts) == 3
    for done in (copied, worked):
        assert sorted(row for row in done if row >= 0) == list(range(100, 123))


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_what_is_tried_first_covers_the_latency_of_dram(gpu: str) -> None:
    config = candidates(StagedNeeds(unit_bytes=4096, work=56), 10**5, machine(gpu))[0]
    assert (config.stages - 1) * config.groups * 4096 >= covering_bytes(machine(gpu))


@pytest.mark.parametrize(
    ("texts", "text"),
    [({"stages": 9}, "stages must be 2 to"), ({"groups": 7}, "groups must be 1 to"), ({"hidden": 16384}, "do not fit")],
)
def test_what_does_not_fit_is_refused(texts: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(dataclasses.replace(asked("rmsnorm", **{"rows": 8, "hidden": 4096, **texts})))
