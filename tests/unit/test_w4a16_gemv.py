"""Is AQLM for few tokens right without matrix instructions, with the instructions of the original, and chosen so?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.interp._arithmetic import dot_products, looked_up, looked_up_rows
from heddle.ir.tile_parser import parse_program
from heddle.ir.tile_printer import print_program
from heddle.kernels.registry import find_kernel
from heddle.kernels.w4a16.shape import W4Config
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.requests import request

CONFIG = W4Config(tile_m=1, tile_n=8, stages=1, warps=8)
TILE = {"tile_m": 1, "tile_n": 8, "stages": 1, "warps": 8, "split_k": 1}


def compiled(scheme: str, **params: Any) -> Any:
    """Return the warp program of a small product on A100."""
    sizes = {"m": 1, "n": 64, "k": 2048, "scheme": scheme, **params}
    return pipeline.compile_kernel("w4a16", machine("a100"), sizes, CONFIG)


@pytest.mark.parametrize(
    ("gpu", "params"),
    [
        ("a100", {"scheme": "aqlm_1x16", "m": 1, "n": 72, "k": 2624}),  # a whole turn, and one of three codes a lane
        ("a100", {"scheme": "aqlm_2x8", "m": 2, "n": 40, "k": 192, "implementation": "gemv"}),
        ("h100", {"scheme": "aqlm_2x8", "m": 8, "n": 16, "k": 2048, "implementation": "gemv"}),
        ("b200", {"scheme": "aqlm_1x16", "m": 3, "n": 24, "k": 320, "implementation": "gemv"}),
    ],
    ids=str,
)
def test_odd_sizes_are_right(gpu: str, params: dict[str, Any]) -> None:
    row = check(request("w4a16", gpu, texts={**TILE, **params}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_channels_in_place_of_barriers_are_right() -> None:
    texts = {**TILE, "scheme": "aqlm_2x8", "m": 1, "n": 24, "k": 256}
    row = check(request("w4a16", "a100", mode="cuda-native", texts=texts))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(
    ("scheme", "rows", "taken"),
    [("aqlm_1x16", 1, "gemv"), ("aqlm_2x8", 1, "gemv"), ("aqlm_2x8", 2, "mma.sync"), ("awq", 1, "mma.sync")],
)
def test_one_row_of_aqlm_takes_it_unasked(scheme: str, rows: int, taken: str) -> None:
    program = pipeline.compile_kernel("w4a16", machine("h100"), {"m": rows, "n": 128, "k": 512, "scheme": scheme})
    assert any(row.op == "HMMA" for row in program.instructions) == (taken == "mma.sync")


@pytest.mark.parametrize(
    ("scheme", "counts"),
    [
        ("aqlm_1x16", {"LDG": 1 + 1 + 1 + 8, "LDS": 8, "STS": 1, "HADD2": 16 + 1, "HFMA2": 32}),
        ("aqlm_2x8", {"LDG": 1 + 1 + 1 + 2, "LDS": 16 + 8, "STS": 1 + 2 * 8, "HADD2": 32 + 16 + 1, "HFMA2": 32}),
    ],
)
def test_a_lane_loads_eight_codes_at_once_and_multiplies_pairs(scheme: str, counts: dict[str, int]) -> None:
    """Beside entries and codes: a scale, a piece of the token, and two pieces of the codebooks, each stored 8 times."""
    mix = Counter(row.op for row in compiled(scheme).instructions)
    assert {op: mix[op] for op in counts} == counts


def test_entries_come_by_sectors_and_codes_by_16_bytes_a_lane() -> None:
    loads = [row for row in compiled("aqlm_1x16").instructions if row.op == "LDG" and row.stream]
    moved = Counter((row.stream.name.split(".")[0], row.bytes) for row in loads)
    assert (moved["K", 32 * 32], moved["R", 32 * 16]) == (8, 1)


def test_both_orders_of_codes_choose_the_same_entries() -> None:
    kernel_ = find_kernel("w4a16")
    inputs, _ = kernel_.reference(kernel_.check({"m": 1, "n": 8, "k": 64, "scheme": "aqlm_2x8"}))
    wide = {name: array.astype(np.float32) for name, array in inputs.items()}
    one = np.ones((1, 8), np.float32)
    assert np.array_equal(looked_up(wide["Q"], one, wide["K"], 2).T, looked_up_rows(wide["R"], wide["K"], 2))


def test_eight_neighbours_are_added_up_in_fp16_and_their_sums_in_fp32() -> None:
    a, b = np.ones((1, 16), np.float32), np.zeros((1, 16), np.float32)
    b[0, [0, 2, 8]] = 2048, 1, 1  # 2,048 and the 1 two further are one fp16 sum, where the 1 is lost
    assert dot_products(a, b).item() == 2049


@pytest.mark.parametrize("scheme", ["aqlm_1x16", "aqlm_2x8"])
def test_text_of_a_program_is_read_back(scheme: str) -> None:
    sizes = {"m": 1, "n": 64, "k": 2624, "scheme": scheme}
    program = pipeline.tile_program("w4a16", machine("a100"), sizes, CONFIG)
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"m": 9, "implementation": "gemv"}, "up to 8 rows"),
        ({"scheme": "awq", "implementation": "gemv"}, "gemv is AQLM"),
        ({"warps": 5, "tile_n": 5}, "16, 8, 4 columns"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_by_name(params: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(request("w4a16", "a100", texts={**TILE, "scheme": "aqlm_1x16", "m": 1, "n": 64, "k": 256, **params}))


def _few_codes(k: Builder) -> None:
    weights, codes = _rows(k, "w", 512, "fp16"), _rows(k, "c", 32, "uint16", lanes=False)
    k.look_up_rows(weights, codes, k.tensor("K", (65536, 8), "fp16")[0, 0])


def _large_book(k: Builder) -> None:
    weights, codes = _rows(k, "w", 256, "fp16"), _rows(k, "c", 256, "uint16")
    k.look_up_rows(weights, codes, k.tensor("K", (1024, 8), "fp16")[0, 0], books=2)


def _matrix(k: Builder) -> None:
    weights, total = _rows(k, "w", 256, "fp16"), _rows(k, "t", 1, "fp32")
    k.dot(total, weights, _rows(k, "x", 256, "fp16"))


def _outside(k: Builder) -> None:
    k.copy_through(
        k.shared("s", (1, 512), "fp16")[:].part(col=0, cols=256), k.tensor("A", (1, 512), "fp16")[0, 0], copies=3
    )


def _rows(k: Builder, name: str, cols: int, dtype: str, *, lanes: bool = True) -> Any:
    return k.registers(name, (4, cols), dtype, warps=(4, 1), spread="rows" if lanes else "fragments")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (_few_codes, "not looked up by"),
        (_large_book, "among 512 entries"),
        (_matrix, "second operand is 4 x 256"),
        (_outside, "3 copies of 256 columns"),
    ],
)
def test_misuse_of_the_operations_is_refused(body: Any, text: str) -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        with k.role("worker", warps=4, registers=64):
            body(k)

    with pytest.raises(UserError, match=text):
        small.build("sm_80")
