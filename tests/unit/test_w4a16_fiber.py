"""Are the FIBER-native W4A16 kernels right, do they make a weight once for the SM, and is what they lack refused?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.kernels.w4a16 import sm90_fiber_config, sm100_fiber_config
from heddle.kernels.w4a16.sm80_fiber_config import FiberW480Config
from heddle.study.checks import check
from heddle.study.requests import request


def test_odd_sizes_are_right() -> None:
    texts = {"m": 70, "n": 136, "k": 512, "tile_m": 64, "tile_n": 128, "stages": 3}
    row = check(request("w4a16", "a100", mode="fiber", texts=texts))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_groups_of_one_block_are_right() -> None:
    texts = {"m": 9, "n": 72, "k": 192, "group": 64, "tile_m": 64, "tile_n": 64, "stages": 2}
    row = check(request("w4a16", "a100", mode="fiber", texts=texts))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("scheme", ["aqlm_1x16", "aqlm_2x8"])
def test_look_ups_are_right_where_a_block_is_not_full(scheme: str) -> None:
    texts = {"m": 70, "n": 136, "k": 448, "scheme": scheme, "tile_m": 64, "tile_n": 128, "stages": 2}
    row = check(request("w4a16", "a100", mode="fiber", texts=texts))
    assert (row["passed"], row["hazards"]) == (True, [])


TURNED = {"m": 130, "n": 136, "k": 512, "tokens": 128, "stages": 2}
"""Sizes that no tile with weights as rows divides, and two parts of tokens."""


@pytest.mark.parametrize(
    "extra", [{}, {"scheme": "aqlm_1x16", "cluster": 2}, {"scheme": "aqlm_2x8", "groups": 1, "k": 448}], ids=str
)
def test_weights_as_rows_are_right_on_h100(extra: dict[str, int | str]) -> None:
    row = check(request("w4a16", "h100", mode="fiber", texts={"groups": 2, "cluster": 1, **TURNED, **extra}))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("scheme", ["awq", "aqlm_1x16", "aqlm_2x8"])
def test_weights_as_rows_are_right_on_b200(scheme: str) -> None:
    texts = {**TURNED, "n": 264, "scheme": scheme}  # two tiles of an item, and one that has no second
    row = check(request("w4a16", "b200", mode="fiber", texts=texts))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(("gpu", "weights"), [("h100", "weights_0"), ("b200", "make")])
def test_a_word_of_weights_takes_the_instructions_of_compiled_code(gpu: str, weights: str) -> None:
    """Compiled for sm_90 and sm_100 16 words are 96 HADD2, 64 LOP3 (sm_100: 83), 64 HMUL2, 32 HFMA2 and 16 SHF (27)."""
    mix = role_mixes("awq", gpu)
    words = mix[weights]["HMUL2"] // 4
    expected = {"HADD2": 96, "LOP3": 64, "HMUL2": 64, "HFMA2": 32, "SHF": 16}
    for op, count in expected.items():
        assert mix[weights][op] == pytest.approx(words * count / 16, rel=0.15), op
    assert not any(roles["HMUL2"] for name, roles in mix.items() if not name.startswith(weights[:4]))


@pytest.mark.parametrize(
    ("scheme", "entry"), [("aqlm_1x16", {"LDG": 16, "HADD2": 0}), ("aqlm_2x8", {"LDS": 32, "HADD2": 64})]
)
def test_each_weft_looks_up_a_quarter_of_a_block(scheme: str, entry: dict[str, int]) -> None:
    """128 columns and 32 rows of k are 16 entries of a lane, in the loop and behind it."""
    mix = role_mixes(scheme)
    codes = {"LDG": 2 * 2 + 2} if "LDG" in entry else {}  # codes of two blocks and scales, 16 bytes a lane at a time
    for op, count in entry.items():
        assert mix["weights"][op] == 2 * count + codes.get(op, 0), op
    assert mix["weights"]["HMUL2"] == 2 * 16 * 4
    assert mix["multiply"]["HMUL2"] == 0


CONFIGS: dict[str, Any] = {
    "a100": FiberW480Config(tile_m=128, tile_n=128, stages=3),
    "h100": sm90_fiber_config.Turned90Config(tokens=128, stages=3),
    "b200": sm100_fiber_config.Turned100Config(tokens=128, stages=3),
}


def role_mixes(scheme: str, gpu: str = "a100") -> dict[str, Counter[str]]:
    """Return the opcodes of each role of the kernel in tiles of 128 x 128."""
    texts = {"m": 128, "n": 128, "k": 1024, "scheme": scheme}
    asked = request("w4a16", gpu, mode="fiber", texts=texts)
    config = CONFIGS[gpu]
    program = pipeline.compile_kernel("w4a16", asked.machine, asked.params, config, "fiber")
    roles = {role.name: role.entry for role in program.roles}
    ends = [*sorted(roles.values()), len(program.instructions)]
    spans = {name: (entry, ends[ends.index(entry) + 1]) for name, entry in roles.items()}
    return {name: Counter(row.op for row in program.instructions[a:b]) for name, (a, b) in spans.items()}


def test_each_weft_unpacks_a_quarter_of_a_block_and_none_that_multiplies_does() -> None:
    mix = role_mixes("awq")
    words = 128 * 64 // 4 // 8 // 32  # of a lane and block
    assert mix["weights"]["HMUL2"] == 4 * words * 2 * 2  # two blocks of a group, in the loop and behind it
    assert mix["multiply"]["HMUL2"] == mix["load_a"]["HMUL2"] == 0


@pytest.mark.parametrize(
    ("params", "text"),
    [({"scheme": "aqlm_2x8", "k": 192}, "two blocks of 128"), ({"k": 128}, "two groups of k or more")],
    ids=str,
)
def test_what_they_lack_is_refused_by_name(params: dict[str, int | str], text: str) -> None:
    asked = request("w4a16", "a100", mode="fiber", texts={"m": 64, "n": 64, "k": 512})
    with pytest.raises(UserError, match=text):
        find_kernel("w4a16").candidates(asked.machine, {**asked.params, **params}, "fiber")
