"""Is the text of small GEMM programs what was reviewed?

After a wanted change run this file as a script: it writes the golden files anew; review the difference.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heddle.ir.tile_text import parse_program, print_program
from heddle.kernels.gemm.shape import GemmConfig
from heddle.kernels.registry import KERNELS
from heddle.machine import machine

GOLDEN = Path(__file__).parent / "golden"
PARAMS = {"m": 256, "n": 128, "k": 256, "dtype": "fp16"}
CASES = {
    "gemm_sm80": (
        "a100",
        GemmConfig(schedule="multistage", tile_m=64, tile_n=64, tile_k=64, stages=3, warps=(2, 2)),
    ),
    "gemm_sm90_cooperative": (
        "h100",
        GemmConfig(schedule="cooperative", tile_m=128, tile_n=128, tile_k=64, stages=3, cluster=2),
    ),
    "gemm_sm90_pingpong": ("h100", GemmConfig(schedule="pingpong", tile_m=64, tile_n=64, tile_k=64, stages=3)),
    "gemm_sm90_split": (
        "h100",
        GemmConfig(schedule="cooperative", tile_m=128, tile_n=64, tile_k=64, stages=3, split_k=2),
    ),
    "gemm_sm100_pair": (
        "b200",
        GemmConfig(schedule="tcgen05", tile_m=128, tile_n=128, tile_k=64, stages=3, cluster=2),
    ),
}


def text_of(name: str) -> str:
    """Build a case and print it, without the lines of the kernels' source, which move with every edit."""
    gpu, config = CASES[name]
    text = print_program(KERNELS["gemm"].build(machine(gpu), PARAMS, config))
    return re.sub(r'^file ".*"\n| where=\d+:\d+', "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", CASES)
def test_text_is_the_reviewed_one(name: str) -> None:
    assert text_of(name) == (GOLDEN / f"{name}.tile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_golden_text_parses_and_prints_alike(name: str) -> None:
    text = (GOLDEN / f"{name}.tile").read_text(encoding="utf-8")
    assert print_program(parse_program(text)) == text


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.tile").write_text(text_of(case), encoding="utf-8")
