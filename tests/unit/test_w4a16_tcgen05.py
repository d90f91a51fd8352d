"""Is W4A16 by tcgen05 right, unpacked once and from tensor memory?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from heddle import interp, pipeline
from heddle.errors import UserError
from heddle.ir.warp import Instruction, WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.kernels.w4a16.shape import W4Config
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.requests import Request, request
from native_mutants import Mutant, mutants

TILE = {"tile_m": 64, "tile_n": 128, "stages": 2, "warps": 4, "split_k": 1}
CONFIG = W4Config(tile_m=64, tile_n=128, stages=2, warps=4)
SIZES = {"m": 70, "n": 136, "k": 256}
BY_TCGEN05 = {**TILE, "implementation": "tcgen05"}


def compiled(**params: Any) -> WarpProgram:
    """Return the warp program of a small product on B200."""
    sizes = {**SIZES, "implementation": "tcgen05", **params}
    return pipeline.compile_kernel("w4a16", machine("b200"), sizes, CONFIG)


@pytest.mark.parametrize(
    "params",
    [
        {},  # a pair of CTAs, rows and columns left over
        pytest.param({"scheme": "aqlm_1x16"}, marks=pytest.mark.slow),
        pytest.param({"scheme": "aqlm_2x8", "warps": 8}, marks=pytest.mark.slow),
        pytest.param({"n": 72, "m": 1, "k": 128}, marks=pytest.mark.slow),  # one CTA
        pytest.param({"m": 300, "n": 264, "k": 384, "tile_m": 256}, marks=pytest.mark.slow),  # sums in one place
    ],
    ids=str,
)
def test_odd_sizes_are_right(params: dict[str, Any]) -> None:
    row = check(request("w4a16", "b200", texts={**BY_TCGEN05, **SIZES, **params}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_a_warp_unpacks_its_rows_once_and_products_read_tensor_memory() -> None:
    program = compiled()
    mix = Counter(row.op for row in program.instructions)
    words = 128 * 128 // 8 // 32 // 4  # of a lane and stage of 128 elements of k
    assert (mix["HMUL2"], mix["HADD2"], mix["LDS"]) == (4 * words, 6 * words, words // 4 + 2)
    products = [(row.form, row.ctas) for row in program.instructions if row.op == "UTCHMMA"]
    assert products == [("ts", 2)] * (128 // 16)


@pytest.mark.parametrize(
    ("gpu", "params", "text"),
    [
        ("h100", {}, "sm_100 only"),
        ("b200", {"k": 192, "group": 64}, "steps of 128; k = 192"),
        ("b200", {"group": 64}, "groups have 128 weights; group = 64"),
        ("b200", {"tile_n": 64}, "tile_n 128"),
        ("b200", {"stages": 40}, "stages must be 2 to"),
    ],
    ids=str,
)
def test_what_tcgen05_cannot_run_is_refused_by_name(gpu: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(request("w4a16", gpu, texts={**BY_TCGEN05, **SIZES, **params}))


def without_commits(program: WarpProgram) -> Iterator[Mutant]:
    """Yield the program without each commit of products."""
    for pc, row in enumerate(program.instructions):
        if row.op == "UTCBAR":
            nothing = Instruction(op="NOP", control=row.control, source=row.source)
            rows = (*program.instructions[:pc], nothing, *program.instructions[pc + 1 :])
            yield f"{pc}: no UTCBAR", dataclasses.replace(program, instructions=rows)


def found(mutant: WarpProgram, asked: Request) -> bool:
    """Return whether a run shows a mutant: it does not end, there is a hazard, or numbers are wrong."""
    inputs, outputs = find_kernel(asked.kernel).reference(asked.params)
    read = {tensor.name: inputs[tensor.name] for tensor in mutant.tensors if tensor.name in inputs}
    try:
        report = interp.check(mutant, asked.machine, read, outputs)
    except UserError:
        return True
    return bool(report.hazards) or not report.ok


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_missing_wait_arrival_or_commit_is_found() -> None:
    asked = request("w4a16", "b200", texts={**BY_TCGEN05, "m": 192, "n": 256, "k": 640})
    asked = dataclasses.replace(asked, machine=dataclasses.replace(asked.machine, sms=2))
    program = pipeline.compile_kernel("w4a16", asked.machine, asked.params, CONFIG)
    tried = [*mutants(program), *without_commits(program)]
    assert len(tried) > 12
    assert [name for name, mutant in tried if not found(mutant, asked)] == []
