"""Does the patch hold for kernels that others wrote? Their packages are installed into the cache of tests."""

import random
from contextlib import suppress

import pytest

from cubins import third_party_cubins
from heddle.errors import UserError
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import Cubin, parse_cubin, read_cubin
from heddle.isa.cubin.judge import Verdict, judge
from heddle.isa.cubin.patch import patch_entry, set_fiber_num
from heddle.isa.cubin.relink import relink
from heddle.isa.cubin.shift import used_instructions
from heddle.isa.words import WORD_BYTES, Words

pytestmark = pytest.mark.slow
FEWEST_KERNELS, FEWEST_INSTRUCTIONS = 500, 100_000
FEWEST_RELINKED, LARGEST_RELINKED_BYTES = 100, 300_000
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


def insertions(cubin: Cubin, seed: str) -> dict[str, dict[int, Words]]:
    """Return three random places in each kernel that can be taken apart."""
    draw, places = random.Random(seed), {}
    for kernel in cubin.kernels:
        count = used_instructions(cubin.words(kernel.section))
        chosen = {WORD_BYTES * index: set_fiber_num(128) for index in draw.sample(range(count), min(3, count))}
        with suppress(UserError):  # a call through a table of functions, say
            relink(cubin, {kernel.name: chosen})
            places[kernel.name] = chosen
    return places


@pytest.mark.timeout(1800)
def test_nvidia_finds_the_same_after_insertions_at_random_places() -> None:
    total, relinked, kernels = Verdict(), 0, 0
    for path in third_party_cubins():
        original = read_cubin(path)
        if original.kernels and path.stat().st_size < LARGEST_RELINKED_BYTES:
            places = insertions(original, path.name)
            after = parse_cubin(relink(original, places))
            assert compare(original, after) == []
            total.add(judge(original, after))
            relinked, kernels = relinked + len(places), kernels + len(original.kernels)
    print(f"{relinked} of {kernels} kernels relinked, {total.instructions} instructions, {total.references} references")
    assert total.differences == []
    assert relinked >= FEWEST_RELINKED


def test_a_cubin_without_kernels_is_answered_with_a_reason() -> None:
    empty = [path for path in third_party_cubins() if not read_cubin(path).kernels]
    assert empty
    with pytest.raises(UserError, match="no kernels"):
        patch_entry(read_cubin(empty[0]))
