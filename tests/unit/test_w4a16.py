"""Are products with quantised weights right, with the instructions of compiled code, and what is wrong refused?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.interp._arithmetic import dequantized
from heddle.ir.tile import TileProgram
from heddle.ir.tile_parser import parse_program
from heddle.ir.tile_printer import print_program
from heddle.kernels.registry import find_kernel
from heddle.kernels.w4a16.reference import packed
from heddle.kernels.w4a16.shape import W4Config
from heddle.lang import Builder, RegisterHandle, kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.choose import SIMULATED
from heddle.study.requests import request

COMPILED = {
    "HMMA": 128,
    "HADD2": 96,
    "LOP3": 64,
    "HMUL2": 64,
    "HFMA2": 32,
    "LDSM": 16,
    "SHF": 16,
    "LDGSTS": 4,
}
"""Main loop of an AWQ-like kernel of 64 x 256 x 64 and four warps, compiled with CUDA 13.0 for sm_80, a stage of A."""
COMPILED_IN_ALL = 484
MARGIN = 0.15
TILE = W4Config(tile_m=64, tile_n=256, stages=3, warps=4)
SMALL = {"tile_m": 32, "tile_n": 128, "stages": 3, "warps": 4, "split_k": 1}


def main_loop(config: W4Config, **params: Any) -> list[str]:
    """Return the opcodes of the loop over groups."""
    sizes = {"m": 512, "n": 512, "k": 1024, **params}
    program = pipeline.compile_kernel("w4a16", machine("a100"), sizes, config)
    first, last = next((row.target, pc) for pc, row in enumerate(program.instructions) if row.op == "LOOP")
    return [row.op for row in program.instructions[first or 0 : last + 1]]


@pytest.mark.parametrize("mode", ["simt", "cuda-native"])
def test_odd_sizes_are_right(mode: str) -> None:
    row = check(request("w4a16", "a100", mode=mode, texts={**SMALL, "m": 70, "n": 136, "k": 384}))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("params", [{"m": 1, "k": 1024, "split_k": 4}, {"m": 33, "k": 256, "group": 64}], ids=str)
def test_small_batches_groups_and_slices_are_right(params: dict[str, int]) -> None:
    row = check(request("w4a16", "a100", texts={**SMALL, "n": 264, **params}))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("scheme", ["aqlm_1x16", "aqlm_2x8"])
def test_look_ups_are_right(scheme: str) -> None:
    row = check(request("w4a16", "a100", texts={**SMALL, "m": 70, "n": 136, "k": 256, "scheme": scheme}))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(("gpu", "scheme"), [("h100", "awq"), ("b200", "aqlm_2x8")])
def test_later_gpus_run_the_same_code(gpu: str, scheme: str) -> None:
    row = check(request("w4a16", gpu, texts={**SMALL, "m": 20, "n": 136, "k": 256, "scheme": scheme}))
    assert (row["passed"], row["hazards"]) == (True, [])


BY_WGMMA = {"implementation": "wgmma", "tile_m": 128, "tile_n": 128, "warps": 8, "stages": 3}


@pytest.mark.parametrize("scheme", ["awq", "aqlm_1x16", "aqlm_2x8"])
def test_weights_as_first_operand_of_wgmma_are_right(scheme: str) -> None:
    row = check(request("w4a16", "h100", texts={**BY_WGMMA, "m": 130, "n": 200, "k": 512, "scheme": scheme}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_a_warp_unpacks_for_wgmma_what_it_multiplies_and_nothing_twice() -> None:
    config = W4Config(tile_m=256, tile_n=128, stages=3, warps=8)
    params = {"m": 256, "n": 256, "k": 1024, "implementation": "wgmma"}
    program = pipeline.compile_kernel("w4a16", machine("h100"), params, config)
    mix = Counter(row.op for row in program.instructions)
    words = 128 * 64 // 8 // 32 // 8  # of a lane and block: two before the loop, two in it
    assert (mix["HMUL2"], mix["HADD2"], mix["LOP3"] >= 16 * words) == (16 * words, 24 * words, True)
    assert mix["HGMMA"] == 4 * 4


@pytest.mark.parametrize(
    ("gpu", "params", "text"),
    [
        ("a100", {}, "sm_90 only"),
        ("h100", {"k": 192, "group": 64}, "steps of 128"),
        ("h100", {"tile_n": 96}, "tile_n of"),
    ],
    ids=str,
)
def test_what_wgmma_cannot_run_is_refused_by_name(gpu: str, params: dict[str, int], text: str) -> None:
    texts = {**BY_WGMMA, "m": 128, "n": 128, "k": 512, **params}
    with pytest.raises(UserError, match=text):
        check(request("w4a16", gpu, texts=texts))


@pytest.mark.parametrize("gpu", ["a100", "h100"])
def test_a_choice_among_todays_kernels_is_refused_in_mode_fiber(gpu: str) -> None:
    texts = {"m": 128, "n": 128, "k": 512, "implementation": "wgmma"}
    with pytest.raises(UserError, match="implementation=wgmma is a choice among today's kernels"):
        check(request("w4a16", gpu, mode="fiber", texts=texts))


def test_a_slice_of_look_ups_is_right_where_all_stages_are_on_their_way_at_once() -> None:
    row = check(
        request("w4a16", "a100", texts={**SMALL, "m": 9, "n": 136, "k": 256, "scheme": "aqlm_1x16", "split_k": 2})
    )
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(
    ("scheme", "counts"),
    [("aqlm_1x16", {"LDG": 8 + 2, "LDS": 0, "HADD2": 0}), ("aqlm_2x8", {"LDG": 2, "LDS": 16, "HADD2": 32})],
)
def test_a_lane_looks_up_one_entry_for_eight_weights_of_each_codebook(scheme: str, counts: dict[str, int]) -> None:
    mix = Counter(main_loop(W4Config(tile_m=32, tile_n=128, stages=3, warps=4), scheme=scheme))
    assert {op: mix[op] for op in counts} == counts  # 64 x 32 weights of a warp and stage: eight codes of a lane
    assert mix["HMUL2"] == 4 * 8


def test_an_entry_from_global_memory_moves_a_sector_and_one_from_shared_memory_has_a_copy_for_each_lane() -> None:
    config = W4Config(tile_m=32, tile_n=128, stages=3, warps=4)
    sizes = {"m": 64, "n": 128, "k": 512}
    far = pipeline.compile_kernel("w4a16", machine("a100"), {**sizes, "scheme": "aqlm_1x16"}, config)
    near = pipeline.compile_kernel("w4a16", machine("a100"), {**sizes, "scheme": "aqlm_2x8"}, config)
    assert {i.bytes for i in far.instructions if i.stream and i.stream.name.startswith("K.")} == {32 * 32}
    assert near.shared_memory_bytes - far.shared_memory_bytes == 512 * 16 * 8
    assert {(i.bytes, i.conflict_ways) for i in near.instructions if i.op == "LDS"} == {(32 * 16, 1)}


def test_main_loop_against_the_compiled_one() -> None:
    loop = main_loop(TILE)
    stages = TILE.stages - 1  # of a group of 128, in the body of the loop
    mix = Counter(loop)
    for op, count in COMPILED.items():
        assert mix[op] == pytest.approx(stages * count, rel=MARGIN), op
    assert len(loop) == pytest.approx(stages * COMPILED_IN_ALL, rel=MARGIN)
    assert mix["LDG"] == 4 * stages + 2  # compiled: scales and zero points for every stage, not once for a group


def test_weights_are_unpacked_once_for_a_tile() -> None:
    """17 instructions for the eight weights of a word, whatever the rows of the tile."""
    few, many = (Counter(main_loop(W4Config(tile_m=m, tile_n=128, stages=3, warps=4))) for m in (32, 128))
    assert few["HMUL2"] == many["HMUL2"] == 4 * 128 * 128 // 8 // 32 // 4


def test_reference_and_interpreter_agree_on_the_packing() -> None:
    weights = np.random.default_rng(1).integers(0, 16, (32, 6), dtype=np.uint8)
    one, none = np.ones((1, 6), np.float32), np.zeros((1, 6), np.float32)
    assert np.array_equal(dequantized(packed(weights).astype(np.float32), one, none), weights)


@pytest.mark.parametrize("scheme", ["awq", "aqlm_1x16", "aqlm_2x8"])
def test_text_of_a_program_is_read_back(scheme: str) -> None:
    params = {"m": 64, "n": 256, "k": 256, "scheme": scheme}
    program = pipeline.tile_program("w4a16", machine("a100"), params, replace(TILE, warps=8))
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"k": 1000}, "no multiple of the group"),
        ({"n": 100}, "columns in steps of 8"),
        ({"stages": 2, "tile_m": 64, "tile_n": 256, "warps": 4}, "groups of 128 end with them"),
        ({"split_k": 9, "tile_m": 64, "tile_n": 256, "warps": 4, "stages": 3, "k": 1024}, "blocks of 128 to a slice"),
        ({"tile_m": 128, "tile_n": 256, "warps": 4, "stages": 3}, "registers a thread"),
        ({"tile_m": 16, "tile_n": 200, "warps": 4, "stages": 3}, "16 columns or a multiple"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_by_name(params: dict[str, int], text: str) -> None:
    kernel_, a100 = find_kernel("w4a16"), machine("a100")
    sizes = {name: value for name, value in params.items() if name in {"m", "n", "k"}}
    fields = {name: value for name, value in params.items() if name not in sizes}
    config = W4Config(**{"tile_m": 64, "tile_n": 256, "stages": 3, "warps": 4, "split_k": 1, **fields})
    with pytest.raises(UserError, match=text):
        kernel_.build(a100, sizes, config)


def _filled(k: Builder, weights: RegisterHandle, packed_: RegisterHandle) -> None:
    k.fill(weights)


def _mixed(k: Builder, weights: RegisterHandle, packed_: RegisterHandle) -> None:
    other = k.registers("other", (16, 128), "fp16", warps=(1, 4))
    k.elementwise("copy", other, packed_)


def _wrong_shape(k: Builder, weights: RegisterHandle, packed_: RegisterHandle) -> None:
    scale = k.registers("s", (1, 64), "fp16", warps=(1, 4), spread="second")
    k.dequantize(weights, packed_, scale, scale)


@pytest.mark.parametrize(
    ("body", "text"),
    [(_filled, "Fill does not take it"), (_mixed, "a source is"), (_wrong_shape, "'s' is 1 x 64")],
)
def test_misuse_of_tiles_spread_as_second_operand_is_refused(body: Any, text: str) -> None:
    with pytest.raises(UserError, match=text):
        _built(body)


def _built(body: Any) -> TileProgram:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        weights = k.registers("w", (16, 128), "fp16", warps=(1, 4), spread="second")
        words = k.registers("q", (2, 512), "uint8", warps=(1, 4), spread="second")
        with k.role("worker", warps=4, registers=64):
            body(k, weights, words)

    return small.build("sm_80")


def test_the_tile_of_fewest_cycles_is_among_those_tried() -> None:
    """4,096 x 4,096 x 4,096 on A100: of twelve simulated 128 x 128 by four warps takes fewest, 804,548 cycles."""
    kernel, gpu = find_kernel("w4a16"), machine("a100")
    tried = kernel.simt_candidates(gpu, kernel.check({}))
    assert (128, 128, 4) in [(tile.tile_m, tile.tile_n, tile.warps) for tile in tried]
    assert len(tried) <= SIMULATED  # a longer list is cut by a bound that does not know of unpacking


def test_why_no_tile_fits_is_said() -> None:
    kernel, gpu = find_kernel("w4a16"), machine("a100")
    sizes = kernel.check({"m": 10_000_000, "n": 10_000_000, "k": 128})
    with pytest.raises(UserError, match="work items; at most"):
        kernel.simt_candidates(gpu, sizes)
