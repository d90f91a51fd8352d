"""Is the RMS normalisation right on every GPU, and is what it cannot do refused by name?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.study import runs
from heddle.study.checks import check
from heddle.study.requests import Request, request
from heddle.study.runs import candidates


def program(**params: Any) -> WarpProgram:
    """Return the warp program on one GPU."""
    asked = request("rmsnorm", "h100", texts={"rows": 16, "hidden": 1024, **params})
    return pipeline.compile_kernel("rmsnorm", asked.machine, asked.params)


@pytest.mark.parametrize("mode", ["simt", "cuda-native"])
@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_odd_sizes_are_right(gpu: str, mode: str) -> None:
    row = check(request("rmsnorm", gpu, mode=mode, texts={"rows": 13, "hidden": 1224}))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("residual", [0, 1])
def test_odd_sizes_are_right_with_early_loads(residual: int) -> None:
    row = check(request("rmsnorm", "h100", texts={"rows": 13, "hidden": 1224, "residual": residual, "early": 1}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_few_rows_are_loaded_early() -> None:
    """Nothing else hides the latency of DRAM."""
    row = runs.run(request("rmsnorm", "h100", texts={"rows": 16, "hidden": 1024, "residual": 1}))
    assert row["params"]["config"].endswith("early")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_residual_is_added_and_written(dtype: str) -> None:
    row = check(request("rmsnorm", "h100", texts={"rows": 9, "hidden": 520, "residual": 1, "dtype": dtype}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_a_row_is_read_once_and_written_once() -> None:
    rows, hidden = 4096, 4096
    asked = request("rmsnorm", "h100", texts={"rows": rows, "hidden": hidden, "warps": 8})
    row = pipeline.run_once("rmsnorm", asked.machine, asked.params, clock_mhz=1755.0, l2_state="cold")
    read = row["traffic"]["dram_read_bytes"]
    assert rows * hidden * 2 <= read < rows * hidden * 2 * 1.01
    assert row["traffic"]["l2_write_bytes"] == rows * hidden * 2


def test_lanes_of_a_row_meet_in_five_shuffles() -> None:
    assert sum(instruction.op == "SHFL" for instruction in program().instructions) == 5


def test_every_warp_loads_its_own_pieces_of_the_rows() -> None:
    found = program(warps=4)
    pieces = [
        i.stream.part + rank * i.stream.rank_stride * i.stream.part_by_rank
        for i in found.instructions
        if i.op == "LDG" and i.stream is not None and i.stream.name.startswith("X")
        for rank in range(4)
    ]
    assert sorted(pieces) == list(range(4 * 1024 // 256))


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"hidden": 1001}, "16 aligned bytes"),
        ({"hidden": 16384}, "registers of each thread"),
        ({"warps": 17}, "1 to 16 warps"),
        ({"rows": 0}, "at least 1"),
        ({"early": 2}, "early must be 0 or 1"),
        ({"hidden": 6144, "residual": 1, "early": 1}, "early=0 has two blocks"),
        ({"rows": 10**12}, "at most 500,000 are simulated"),
    ],
)
def test_what_cannot_run_is_refused(params: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        _built(params)


def _built(params: dict[str, int]) -> None:
    asked = request("rmsnorm", "h100", texts=params)
    pipeline.tile_program("rmsnorm", asked.machine, asked.params, candidates(asked)[0])


def test_candidates_are_compared_where_all_sms_share_dram(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def simulated(asked: Request, config: Any, clock: float) -> dict[str, int]:
        seen.append(asked.simulation)
        return {"cycles": 1}

    monkeypatch.setattr(runs, "_simulated", simulated)
    asked = request("rmsnorm", "h100", mode="fiber", texts={"rows": 2048, "hidden": 1024})
    runs.tile_choice(asked, lambda done, total, what: None)
    runs.tile_choice(dataclasses.replace(asked, simulation="representative"), lambda done, total, what: None)
    many = len(seen) // 2
    assert many > 1
    assert seen == ["chip"] * many + ["representative"] * many


@pytest.mark.slow
def test_the_mapping_that_is_chosen_is_the_fastest_on_the_chip() -> None:
    """On one group of SMs one pair of roles seems to be; A100 shares too little DRAM for it."""
    asked = request("rmsnorm", "a100", mode="fiber", clock_mhz=1410.0)
    assert runs.run(asked)["params"]["config"] == "fiber g2 s2"
