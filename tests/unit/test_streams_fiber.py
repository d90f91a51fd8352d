"""Are the FIBER-native norm, rotation and gating right at odd sizes, and do loads flow without waits between them?"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels._streams import WEFTS, Needs, StreamConfig, candidates, covering_bytes, unit_items
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.model.rope_fiber import unit_heads
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import mutants, rejected

SMS = 2
EVERY = 9
"""So many mutants are left out for each that is tried."""
NORM = {"rows": 27, "hidden": 512}
OWN = NORM | {"weights": "own", "groups": 1, "stages": 2}
ROPE = {"rows": 70, "heads_q": 5, "heads_kv": 4, "head_dim": 64}
HEADS = {"rows": 37, "heads_q": 4, "heads_kv": 2, "head_dim": 128}
GATES = {"rows": 27, "cols": 1288}


def asked(kernel: str, gpu: str = "a100", **texts: Any) -> Request:
    """Ask for a kernel on a GPU with a few SMs, so that each has several units."""
    found = request(kernel, gpu, mode="fiber", texts=texts)
    return dataclasses.replace(found, machine=found.machine.replace(sms=SMS))


def program(kernel: str, **texts: Any) -> WarpProgram:
    """Return the warp program."""
    found = asked(kernel, **texts)
    if found.pins:
        return compiled(found)
    return pipeline.compile_kernel(kernel, found.machine, found.params, mode="fiber")


@pytest.mark.parametrize(
    ("kernel", "gpu", "sizes"),
    [
        ("rmsnorm", "a100", NORM),
        pytest.param(  # weights of no whole blocks
            "rmsnorm", "h100", NORM | {"hidden": 520, "residual": 1, "dtype": "bf16"}, marks=pytest.mark.slow
        ),
        pytest.param("rmsnorm", "b200", NORM | {"residual": 1}, marks=pytest.mark.slow),
        ("rmsnorm", "h100", {"rows": 3, "hidden": 1224}),
        ("rmsnorm", "a100", OWN),
        ("rmsnorm", "b200", NORM | {"hidden": 520, "residual": 1, "weights": "loaded"}),
        ("rope", "a100", ROPE | {"dtype": "bf16"}),
        ("rope", "b200", HEADS),
        ("silu_mul", "a100", GATES | {"groups": 1, "stages": 2}),
        ("silu_mul", "h100", {"rows": 1, "cols": 8}),
    ],
)
def test_odd_sizes_are_right(kernel: str, gpu: str, sizes: dict[str, Any]) -> None:
    row = check(asked(kernel, gpu, **sizes))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_no_load_into_the_pool_waits_for_another_one() -> None:
    rows = program("silu_mul", **GATES).instructions
    loads = [row for before, row in itertools.pairwise(rows) if row.op == "LDG" and before.bind is not None]
    assert loads
    assert all(row.control.write_barrier is None for row in loads)


@pytest.mark.parametrize("place", ["own", "loaded"])
def test_weights_of_a_machine_without_crossbar_lie_in_own_registers(place: str) -> None:
    rows = program("rmsnorm", **NORM, weights=place, groups=1, stages=2).instructions
    assert not [row for row in rows for source in row.src if source and source.place in range(WEFTS)]
    assert find_kernel("rmsnorm").native_on(STEPS[2].machine(machine("a100"))).tile[-1].name == "weights"


def test_weights_are_loaded_once_and_read_by_all_subpartitions() -> None:
    rows = program("rmsnorm", **NORM).instructions
    loads = [row for row in rows if row.op == "LDG" and row.stream is not None and row.stream.name.startswith("W")]
    assert len(loads) == 1  # of each of four wefts: two blocks lie in two subpartitions
    assert {source.place for row in rows if row.op == "HADD2" for source in row.src if source} >= {0, 1}


@pytest.mark.parametrize(("kernel", "sizes"), [
    ("rmsnorm", NORM), ("rmsnorm", OWN), ("rope", HEADS), pytest.param("silu_mul", GATES, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_verifier_rejects_every_mutant(kernel: str, sizes: dict[str, Any]) -> None:
    found = asked(kernel, **sizes)
    every = list(mutants(program(kernel, **sizes)))
    assert len(every) > EVERY
    assert [name for name, mutant in every[::EVERY] if not rejected(mutant, found.machine)] == []


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_what_is_tried_first_covers_the_latency_of_dram(gpu: str) -> None:
    found = candidates(Needs(unit=32, work=56), 10**5, machine(gpu))
    flying = [config.groups * config.stages * 32 * LANES * REGISTER_BYTES * WEFTS for config in found]
    assert min(flying) >= covering_bytes(machine(gpu))


def test_an_sm_of_a100_needs_eight_kilobytes_on_their_way() -> None:
    """Little's law with what docs/explanation/models.md says."""
    assert covering_bytes(machine("a100")) == pytest.approx(8192, rel=0.1)


def test_heads_of_a_unit_share_its_angles() -> None:
    """Eight of 40 heads of 128: each row of the table is loaded five times, not forty."""
    problem = find_kernel("rope").problem({"rows": 64, "heads_q": 32, "heads_kv": 8, "head_dim": 128})
    assert unit_heads(problem) == 8


def test_every_unit_is_done_once() -> None:
    config, gpu = StreamConfig(groups=2, stages=2), machine("a100").replace(sms=3)
    items, threads = unit_items({"row": range(100, 123)}, config, gpu)
    slots = [(0, 0), (0, 1), (1, 0), (1, 1)]
    done = [
        items[f"row_{g}_{s}"][index]
        for index in range(len(items["has_0_0"]))
        for g, s in slots
        if items[f"has_{g}_{s}"][index]
    ]
    assert threads == 3
    assert sorted(done) == list(range(100, 123))


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        ({"stages": 9}, "stages must be 1 to"),
        ({"groups": 5}, "groups must be 1 to 4"),
        ({"hidden": 16384}, "no window holds"),
        ({"hidden": 520, "weights": "pool"}, "whole blocks of 256"),
    ],
)
def test_what_does_not_fit_is_refused(texts: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(asked("rmsnorm", **{"rows": 8, "hidden": 4096, **texts}))
