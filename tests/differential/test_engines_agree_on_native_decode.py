"""Do both engines agree on every count where operands of mma.sync come straight from global memory, on every GPU?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.tile_text import parse_program as parse_tiles
from heddle.ir.tile_text import print_program as print_tiles
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.pipeline import compile_kernel, tile_program
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.study.requests import request

SIZES = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 300, "num_splits": 2}


@pytest.mark.parametrize("gpu", [pytest.param(gpu, marks=pytest.mark.slow) for gpu in ("a100", "h100", "b200")])
def test_engines_agree(gpu: str) -> None:
    asked = request("decode_split", gpu, mode="fiber", texts=SIZES)
    small = dataclasses.replace(asked.machine, sms=2)
    tiles = tile_program("decode_split", small, asked.params, mode="fiber")
    assert parse_tiles(print_tiles(tiles)) == tiles
    program = compile_kernel("decode_split", small, asked.params, mode="fiber")
    verify(program, small)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))
