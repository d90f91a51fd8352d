"""Are registers live where a later instruction may read them, and nowhere else?"""

import pytest

from cubins import EXIT, KERNELS, NOP, own_cubin, small_cubin, third_party_cubins, tool
from heddle.isa.cubin.cubin import parse_cubin, read_cubin
from heddle.isa.cubin.flow import EXACT, flow_of, raw_instructions
from heddle.isa.cubin.life_judge import LifeVerdict, judge_life
from heddle.isa.instruction import Kind
from heddle.isa.life_ranges import parse_life_ranges
from heddle.isa.liveness import Convention, Flow, count_of, live_sets, names_of, registers

A, B = registers(Kind.GPR, 4), registers(Kind.GPR, 5)
SOUND, ENDING = Convention(), Convention(guarded_ends=True)
MOST_DIFFERENT = {("tcgen05", "sm_100a"): 2}
"""Instructions after which a write by an opcode that the table does not know has a uniform guard."""


def straight(*steps: tuple[int, int, int]) -> Flow:
    """Return code without branches: (reads, writes, guard) of each instruction."""
    reads, writes, guards = zip(*steps, strict=True)
    return Flow(reads, writes, guards, [[i + 1] for i in range(len(steps) - 1)] + [[]])


def test_a_value_lives_from_its_write_to_its_last_read() -> None:
    assert live_sets(straight((0, 0, 0), (0, A, 0), (0, 0, 0), (A, 0, 0), (0, 0, 0)), SOUND) == [0, A, A, A, 0]


def test_a_write_that_nobody_reads_counts_where_it_is() -> None:
    assert live_sets(straight((0, A, 0), (0, A, 0), (0, 0, 0)), SOUND) == [A, A, 0]


def test_what_is_read_and_written_at_once_lives_before() -> None:
    assert live_sets(straight((0, 0, 0), (A, A, 0), (A, 0, 0)), SOUND) == [A, A, A]


def test_a_guarded_write_does_not_end_the_value_before_it() -> None:
    assert live_sets(straight((0, 0, 0), (0, A, 1), (A, 0, 0)), SOUND) == [A, A, A]


def test_a_loop_keeps_what_the_next_round_reads() -> None:
    flow = Flow([0, A, 0, 0], [A, 0, B, 0], [0, 0, 0, 0], [[1], [2], [1, 3], []])
    assert live_sets(flow, SOUND) == [A, A, A | B, 0]


def test_a_branch_lets_both_ways_live() -> None:
    flow = Flow([0, 0, A, B], [0, 0, 0, 0], [0, 1, 0, 0], [[1], [2, 3], [], []])
    assert live_sets(flow, SOUND) == [A | B, A | B, A, B]


@pytest.mark.parametrize(("convention", "before"), [(SOUND, A), (ENDING, 0)])
def test_nvidias_guarded_writes_end_values_of_earlier_regions(convention: Convention, before: int) -> None:
    flow = Flow([0, 0, A], [0, A, 0], [0, 1, 0], [[1], [2], []], starts=frozenset((1, 2)))
    assert live_sets(flow, convention) == [before, A, A]


@pytest.mark.parametrize(("target", "before"), [(2, A), (3, 0)])
def test_but_not_where_the_branch_has_the_opposite_guard(target: int, before: int) -> None:
    """Register A is written if the guard holds, and read where it does not (the next) or does (the target)."""
    reads = [0, 0, A, 0] if target == 2 else [0, 0, 0, A]
    flow = Flow(reads, [0, A, 0, 0], [0, 1, 0, 0], [[1], [2, 3], [], []], {1: 3}, frozenset((1,)))
    assert live_sets(flow, ENDING)[0] == before


def test_sets_have_names_and_counts() -> None:
    live = registers(Kind.GPR, 8, 2) | registers(Kind.UNIFORM, 3) | registers(Kind.PREDICATE, 6)
    assert (names_of(live), count_of(live), count_of(live, Kind.UNIFORM)) == (["R8", "R9", "UR3", "P6"], 2, 1)


def test_a_decoded_cubin_has_one_way_for_each_instruction() -> None:
    decoded, flow = flow_of(parse_cubin(small_cubin()), 6, EXACT)
    assert len(live_sets(flow, EXACT)) == len(decoded) == len(flow.successors)


def test_a_branch_that_may_be_left_keeps_what_its_target_reads() -> None:
    flow = Flow([0, 0, 0, A], [A, 0, A, 0], [0, 1, 0, 0], [[1], [2, 3], [3], []], {1: 3})
    assert live_sets(flow, SOUND) == [A, A, A, A]


def test_an_unknown_opcode_reads_every_register() -> None:
    unknown = 0x000FE200000000FF_000000040500701F
    cubin = parse_cubin(small_cubin([unknown, EXIT, *[NOP] * 4]))
    decoded, flow = flow_of(cubin, 6, EXACT)
    assert raw_instructions(decoded).tolist() == [0]
    assert count_of(live_sets(flow, EXACT)[0]) == 24


LISTED = """\
\t.section\t.text.k,"ax",@progbits
                                // |  GPR  | PRED |
                                // |  # 01 | # 0  |
        /*0000*/  MOV R1, R0 ;  // |  2 v^ | 1 :  |
        /*0020*/  EXIT ;        // |  1  : | 1 v  |
"""


def test_marks_of_nvidia_are_read_by_column() -> None:
    ranges = parse_life_ranges(LISTED)[".text.k"]
    assert ranges.numbers == [0, 2]
    sets = ranges.reads[0], ranges.writes[0], ranges.live[1]
    assert [names_of(one) for one in sets] == [["R0"], ["R1"], ["R1", "P0"]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), KERNELS)
def test_the_analysis_agrees_with_nvidia_on_its_own_roles(name: str, architecture: str) -> None:
    tool("nvdisasm")
    verdict = judge_life(read_cubin(own_cubin(name, architecture)), by_tables=False)
    assert verdict.instructions > 200
    assert len(verdict.live) <= MOST_DIFFERENT.get((name, architecture), 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_analysis_agrees_with_nvidia_on_kernels_of_others() -> None:
    tool("nvdisasm")
    total = LifeVerdict()
    for path in third_party_cubins():
        if path.name.startswith("libnvjpeg") and 80_000 < path.stat().st_size < 400_000:
            total.add(judge_life(read_cubin(path), by_tables=False))
    assert total.sections >= 50
    assert total.live == []
