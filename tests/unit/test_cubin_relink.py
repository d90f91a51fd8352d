"""Does a kernel stay the same program when instructions are inserted in its middle?"""

import random

import pytest

import heddle.isa.cubin.relink as relinking
from cubins import KERNELS, own_cubin, small_cubin
from heddle.errors import UserError
from heddle.isa.cubin.branches import branches
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import Cubin, opcodes, parse_cubin, read_cubin
from heddle.isa.cubin.judge import judge
from heddle.isa.cubin.patch import SET_FIBER_NUM, set_fiber_num
from heddle.isa.cubin.relink import CALL_THROUGH_TABLE, relink
from heddle.isa.cubin.shift import used_instructions

WORD = set_fiber_num(64)


def at_random(cubin: Cubin, seed: str) -> dict[str, dict[int, object]]:
    """Return three places in each kernel that can be taken apart."""
    draw, places = random.Random(seed), {}
    for kernel in cubin.kernels:
        count = used_instructions(cubin.words(kernel.section))
        chosen = {16 * index: WORD for index in draw.sample(range(count), min(3, count))}
        if not (opcodes(cubin.words(kernel.section)) == CALL_THROUGH_TABLE).any():
            places[kernel.name] = chosen
    return places


def test_a_branch_over_the_place_is_longer() -> None:
    original = parse_cubin(small_cubin())
    after = parse_cubin(relink(original, {"k": {0x20: WORD}}))
    assert compare(original, after) == []
    found = branches(after.words(6), "sm_90")
    assert dict(zip(found.index.tolist(), found.target.tolist(), strict=True))[1] == 0x40


@pytest.mark.parametrize(("through", "target"), [(True, 0x30), (False, 0x40)])
def test_a_branch_to_the_place_runs_what_was_inserted_if_asked(through: bool, target: int) -> None:
    original = parse_cubin(small_cubin())
    after = parse_cubin(relink(original, {"k": {0x30: WORD}}, through))
    assert compare(original, after) == []
    assert branches(after.words(6), "sm_90").target[0] == target


def test_several_places_and_the_first_instruction() -> None:
    original = parse_cubin(small_cubin())
    after = parse_cubin(relink(original, {"k": {0: WORD, 0x10: WORD, 0x50: WORD}}))
    assert compare(original, after) == []
    assert (opcodes(after.words(6)) == SET_FIBER_NUM).sum() == 3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), KERNELS)
def test_own_kernels_stay_the_same(name: str, architecture: str) -> None:
    original = read_cubin(own_cubin(name, architecture))
    places = at_random(original, name + architecture)
    for through in (True, False):
        assert compare(original, parse_cubin(relink(original, places, through))) == []
    assert judge(original, parse_cubin(relink(original, places))).differences == []


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_move_branches", "_move_returns", "_moved_table"])
def test_a_step_left_out_is_found(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = read_cubin(own_cubin("control", "sm_100a"))
    places = at_random(original, "left out")
    monkeypatch.setattr(relinking, step, lambda *_: {})
    assert compare(original, parse_cubin(relink(original, places))) != []


@pytest.mark.slow
def test_a_call_through_a_table_is_refused() -> None:
    original = read_cubin(own_cubin("control", "sm_90a"))
    (name,) = [kernel.name for kernel in original.kernels if "pointers" in kernel.name]
    with pytest.raises(UserError, match="calls through a table of functions"):
        relink(original, {name: {16: WORD}})
