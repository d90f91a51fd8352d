"""Does the patch hold for kernels that others wrote? Their packages are installed into the cache of tests."""

import pytest

from cubins import third_party_cubins
from heddle.errors import UserError
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import parse_cubin, read_cubin
from heddle.isa.cubin.judge import Verdict, judge
from heddle.isa.cubin.patch import patch_entry

pytestmark = pytest.mark.slow
FEWEST_KERNELS, FEWEST_INSTRUCTIONS = 500, 100_000
LARGEST_BYTES = 1 << 20
"""NVIDIA's disassembler takes a minute for larger files; our own check takes them all."""


def test_all_kernels_stay_the_same() -> None:
    kernels = 0
    for path in third_party_cubins():
        original = read_cubin(path)
        if original.kernels:
            assert compare(original, parse_cubin(patch_entry(original, 128).data)) == []
            kernels += len(original.kernels)
    assert kernels >= 3 * FEWEST_KERNELS


@pytest.mark.timeout(1800)
def test_nvidia_finds_the_same_instructions_labels_and_calls() -> None:
    total = Verdict()
    for path in third_party_cubins():
        original = read_cubin(path)
        if original.kernels and path.stat().st_size < LARGEST_BYTES:
            total.add(judge(original, parse_cubin(patch_entry(original, 128).data)))
    assert total.differences == []
    assert total.kernels >= FEWEST_KERNELS
    assert total.instructions >= FEWEST_INSTRUCTIONS


def test_a_cubin_without_kernels_is_answered_with_a_reason() -> None:
    empty = [path for path in third_party_cubins() if not read_cubin(path).kernels]
    assert empty
    with pytest.raises(UserError, match="no kernels"):
        patch_entry(read_cubin(empty[0]))
