"""Is the FIBER-native AWQ kernel right, does it unpack a weight once for the SM, and is what it lacks refused?"""

from __future__ import annotations

from collections import Counter

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.kernels.gemm.sm80_fiber_config import FiberGemm80Config
from heddle.kernels.registry import find_kernel
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


def test_each_weft_unpacks_a_quarter_of_a_block_and_none_that_multiplies_does() -> None:
    asked = request("w4a16", "a100", mode="fiber", texts={"m": 128, "n": 128, "k": 1024})
    config = FiberGemm80Config(tile_m=128, tile_n=128, stages=3)
    program = pipeline.compile_kernel("w4a16", asked.machine, asked.params, config, "fiber")
    roles = {role.name: role.entry for role in program.roles}
    ends = [*sorted(roles.values()), len(program.instructions)]
    spans = {name: (entry, ends[ends.index(entry) + 1]) for name, entry in roles.items()}
    mix = {name: Counter(row.op for row in program.instructions[a:b]) for name, (a, b) in spans.items()}
    words = 128 * 64 // 4 // 8 // 32  # of a lane and block
    assert mix["weights"]["HMUL2"] == 4 * words * 2 * 2  # two blocks of a group, in the loop and behind it
    assert mix["multiply"]["HMUL2"] == mix["load_a"]["HMUL2"] == 0


@pytest.mark.parametrize(
    ("params", "text"),
    [({"scheme": "aqlm_2x8"}, "unpacks awq"), ({"k": 128}, "two groups of k or more")],
    ids=str,
)
def test_what_it_lacks_is_refused_by_name(params: dict[str, int | str], text: str) -> None:
    asked = request("w4a16", "a100", mode="fiber", texts={"m": 64, "n": 64, "k": 512})
    with pytest.raises(UserError, match=text):
        find_kernel("w4a16").candidates(asked.machine, {**asked.params, **params}, "fiber")
