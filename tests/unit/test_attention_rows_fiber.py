"""Are the launches around the backward pass right in mode fiber, in all steps, and does each move an element once?"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from heddle import pipeline, sim
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.backward.rows_pass import RowPass
from heddle.kernels.attention.backward.rows_passes import Convert, GroupSum
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study import composites
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from native_mutants import fate, mutants

QUERIES: dict[str, Any] = {"batch": 1, "heads_q": 3, "seqlen_q": 77}
KEYS: dict[str, Any] = {"batch": 1, "heads_q": 6, "heads_kv": 2, "seqlen_q": 5, "seqlen_kv": 77}
SIZES = {
    "preprocess": QUERIES, "preprocess_fa3": QUERIES, "convert": QUERIES,
    "group_sum": KEYS, "clear_keys": KEYS, "convert_keys": KEYS,
}  # fmt: skip
LITERAL, BITS = 0, 2
"""Steps of the ablation: the first without full and empty bits, the first with them."""
GPUS = ("a100", "h100", "b200")


def asked(name: str, gpu: str = "a100", step: int = BITS, **texts: Any) -> Request:
    """Ask for a launch on a GPU of two SMs with the features of a step."""
    at = STEPS[step].machine(machine(gpu)).replace(sms=2)
    return request(f"attention_bwd_{name}", at, mode="fiber", texts={"head_dim": 64, **texts})


def program(name: str, step: int = BITS, **texts: Any) -> tuple[WarpProgram, Request]:
    """Return the warp program of the first configuration, and what was asked."""
    found = asked(name, step=step, **texts)
    return pipeline.compile_kernel(found.kernel, found.machine, found.params, mode="fiber"), found


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("step", [LITERAL, BITS])
@pytest.mark.parametrize(
    ("head_dim", "gpu", "dtype"), [(64, "a100", "bf16"), (128, "h100", "fp16"), (256, "b200", "bf16")]
)
def test_odd_lengths_are_right(name: str, step: int, head_dim: int, gpu: str, dtype: str) -> None:
    row = check(asked(name, gpu, step, **SIZES[name], head_dim=head_dim, dtype=dtype))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(
    ("name", "step"), [("preprocess_fa3", LITERAL), ("convert", BITS), ("group_sum", LITERAL), ("clear_keys", BITS)]
)
def test_a_short_one_is_right(name: str, step: int) -> None:
    short = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 13, "seqlen_kv": 11}
    row = check(asked(name, step=step, **short))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("name", SIZES)
def test_every_step_has_a_kernel(name: str) -> None:
    for step in STEPS:
        for at in (step.machine(machine(gpu)) for gpu in GPUS):
            assert not find_kernel(f"attention_bwd_{name}").native_on(at).lacks(at)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_no_launch_of_a_pass_runs_as_today(gpu: str, step: int) -> None:
    sizes = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 20, "seqlen_kv": 24, "head_dim": 64}
    at = STEPS[step].machine(machine(gpu))
    for direction in ("bwd", "fwd+bwd"):
        steps = composites.questions(request("attention", at, mode="fiber", texts={**sizes, "direction": direction}))
        assert [found.note for found in steps if found.note] == []


def test_a_pass_that_loads_nothing_shares_no_register() -> None:
    rows = program("clear_keys", **KEYS)[0].instructions
    assert not [row for row in rows if row.bind is not None or row.op == "LDG"]


def test_no_load_into_the_pool_waits_for_another_one() -> None:
    rows = program("convert", **SIZES["convert"])[0].instructions
    loads = [row for before, row in itertools.pairwise(rows) if row.op == "LDG" and before.bind is not None]
    assert loads
    assert all(row.control.write_barrier is None for row in loads)


@pytest.mark.slow
@pytest.mark.parametrize("step", [LITERAL, BITS])
@pytest.mark.parametrize(("name", "read", "written"), [("preprocess", 2 * 2, 4), ("convert", 4, 2)])
def test_an_element_is_read_and_written_once(name: str, read: int, written: int, step: int) -> None:
    found = asked(name, step=step, batch=1, heads_q=4, seqlen_q=256)
    traffic = pipeline.run_once(
        found.kernel, found.machine, found.params, mode="fiber", clock_mhz=1410.0, l2_state="cold", simulation="chip"
    )["traffic"]
    elements = 4 * 256 * 64
    column = 4 * elements // 64 if name == "preprocess" else 0
    assert traffic["l2_read_bytes"] == read * elements
    assert traffic["l2_write_bytes"] == written * elements + column


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("step", [LITERAL, BITS])
def test_the_engines_agree_on_every_stall(name: str, step: int) -> None:
    compiled, found = program(name, step, **SIZES[name])
    ours, plain = (
        sim.simulate(compiled, found.machine, mode="chip", engine=engine, fast_forward=False)
        for engine in ("compiled", "reference")
    )
    assert ours.cycles == plain.cycles
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["preprocess_fa3", "convert", "group_sum", "convert_keys"])
def test_every_mutant_is_found(name: str) -> None:
    """A hold or a consumption less, or two exchanged: the verifier of channels or a run says so."""
    compiled, found = program(name, **SIZES[name])
    every = list(mutants(compiled))
    assert every
    assert [what for what, mutant in every[::9] if not fate(mutant, found)] == []


@pytest.mark.parametrize("kind", [Convert, GroupSum])
def test_every_row_is_in_one_unit(kind: type[RowPass]) -> None:
    params = find_kernel("attention_bwd_convert").problem({**KEYS, "seqlen_q": 77, "head_dim": 128})
    rows = kind(params)
    units, size = rows.units(), rows.blocks * rows.block_rows
    found = [(plane, row) for plane, first in zip(units["plane"], units["row"], strict=True)
             for row in range(first, min(first + size, 77))]  # fmt: skip
    assert sorted(found) == [(plane, row) for plane in range(rows.planes) for row in range(77)]
    assert rows.unit_count() == len(units["row"])


@pytest.mark.parametrize(
    ("name", "step", "texts", "text"),
    [
        ("convert", BITS, {"stages": 9}, "stages must be 1 to"),
        ("convert", LITERAL, {"groups": 7}, "groups must be 1 to"),
        ("group_sum", BITS, {"heads_q": 128, "heads_kv": 1, "seqlen_kv": 8}, "code for up to 64"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, step: int, texts: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(asked(name, step=step, **{**QUERIES, **texts}))
