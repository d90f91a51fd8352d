"""How many CTAs fit, what runs where, and what is said when nothing fits?"""

import dataclasses

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.ir.warp import Count, Instruction, Role, WarpProgram, Work
from heddle.sim.launch import occupancy, plan_launch
from heddle.sim.launch_work import hand_out, item_weights, shares
from memory_cases import gemm_program, machine, stream_program


def with_role(program: WarpProgram, **changes: object) -> WarpProgram:
    return dataclasses.replace(program, roles=(dataclasses.replace(program.roles[0], **changes),))


def test_registers_are_rounded_up_to_the_allocation_unit() -> None:
    m = machine("h100")
    fit = occupancy(with_role(stream_program(), warps=4, registers_per_thread=33), m)
    assert fit.registers_per_cta == 4 * 40


def test_roles_take_registers_one_by_one() -> None:
    roles = (
        Role(name="producer", first_warp=0, warps=4, entry=0, registers_per_thread=40),
        Role(name="consumer", first_warp=4, warps=8, entry=0, registers_per_thread=232),
    )
    fit = occupancy(dataclasses.replace(stream_program(), roles=roles), machine("h100"))
    assert fit.registers_per_cta == 4 * 40 + 8 * 232
    assert (fit.ctas_per_sm, fit.limited_by) == (1, "registers")


def test_shared_memory_counts_the_reserve() -> None:
    m = machine("h100")
    half = m.shared_memory_bytes // 2
    fits = dataclasses.replace(stream_program(), shared_memory_bytes=half - m.shared_memory_reserved_bytes_per_cta)
    assert occupancy(fits, m).ctas_per_sm == 2
    over = dataclasses.replace(fits, shared_memory_bytes=fits.shared_memory_bytes + 1)
    assert (occupancy(over, m).ctas_per_sm, occupancy(over, m).limited_by) == (1, "shared memory")


def test_warps_and_ctas_limit_small_programs() -> None:
    m = machine("h100")
    assert occupancy(stream_program(), m).limited_by == "CTAs"
    many = occupancy(with_role(stream_program(), warps=16), m)
    assert (many.ctas_per_sm, many.limited_by) == (4, "registers" if many.limits["registers"] == 4 else "warps")


def test_tensor_memory_limits_only_programs_that_use_it() -> None:
    m = machine("b200")
    assert "tensor memory" not in occupancy(stream_program(), m).limits
    fit = occupancy(dataclasses.replace(stream_program(), tensor_memory_columns=256), m)
    assert (fit.ctas_per_sm, fit.limited_by) == (2, "tensor memory")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shared_memory_bytes": 300_000}, ("300000 bytes of shared memory", "232448", "fewer stages")),
        ({"roles": (Role(name="r", first_warp=0, warps=16, entry=0, registers_per_thread=168),)}, ("2688", "2048")),
        ({"roles": (Role(name="r", first_warp=0, warps=80, entry=0, registers_per_thread=8),)}, ("80 warps", "64")),
        ({"tensor_memory_columns": 64}, ("64 columns", "has 0")),
        ({"roles": (Role(name="big", first_warp=0, warps=1, entry=0, registers_per_thread=300),)}, ("'big'", "255")),
        ({"roles": ()}, ("no warps",)),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        occupancy(dataclasses.replace(stream_program(), **changes), machine("h100"))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster_size": 64}, "clusters of 64 CTAs"),
        ({"work": Work(attributes=("first",), items=np.zeros((0, 1), np.int64), schedule="static", grid=1)}, "no work"),
        ({"work": Work(attributes=("first",), items=np.zeros((1, 1), np.int64), schedule="static", grid=0)}, "grid"),
    ],
)
def test_work_that_cannot_be_launched_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan_launch(dataclasses.replace(stream_program(), **changes), machine("h100"))


def test_static_clusters_take_every_grid_th_item() -> None:
    plan = plan_launch(gemm_program(m_tiles=5, n_tiles=5, grid=8), machine("h100"))
    assert plan.clusters == 8
    assert plan.items[0].tolist() == [0, 8, 16, 24]
    assert plan.items[1].tolist() == [1, 9, 17]
    assert plan.representative == 0  # it alone has four


def test_the_middle_of_equally_loaded_groups_represents_the_chip() -> None:
    assert plan_launch(gemm_program(m_tiles=4, n_tiles=4, grid=8), machine("h100")).representative == 4


def test_a_grid_larger_than_the_chip_is_cut_to_what_fits() -> None:
    m = machine("h100", sms=4)
    plan = plan_launch(gemm_program(m_tiles=5, n_tiles=5, grid=25), m)
    assert plan.clusters == 4
    assert sorted(np.concatenate(plan.items).tolist()) == list(range(25))


def test_clusters_fill_groups_first_and_slots_second() -> None:
    m = machine("h100", sms=4)
    plan = plan_launch(stream_program(items=10, grid=10), m)
    assert list(plan.group_clusters(1)) == [1, 5, 9]
    assert plan.group_items(1).tolist() == [1, 5, 9]


def test_a_cluster_takes_neighbouring_sms() -> None:
    plan = plan_launch(gemm_program(cluster_size=2, grid=66), machine("h100"))
    assert plan.groups == 66
    assert list(plan.group_sms(3)) == [6, 7]


def test_ordinals_go_wave_by_wave_over_the_slots() -> None:
    m = machine("h100", sms=2)
    plan = plan_launch(stream_program(items=11, grid=4), m)
    rows = plan.group_items(0)
    for slot, cluster in enumerate(plan.group_clusters(0)):
        for index, row in enumerate(plan.items[cluster]):
            assert rows[plan.item_ordinal(0, slot, index)] == row
    assert (rows == -1).sum() == len(rows) - sum(len(plan.items[c]) for c in plan.group_clusters(0))


def test_launched_items_go_to_whoever_is_free_first() -> None:
    assert hand_out(np.array([5, 1, 1, 1, 3, 9]), 2) == [[0, 5], [1, 2, 3, 4]]


def test_a_partly_filled_last_round_fills_whole_sms() -> None:
    """CTAs of an SM end together, so that both its places are free when the SM's turn comes."""
    lists = hand_out(np.ones(9), takers=6, groups=3)
    assert lists == [[0, 6], [1, 8], [2], [3, 7], [4], [5]]


def test_equal_items_are_shared_as_they_are_handed_out() -> None:
    dealt = [items.tolist() for items in shares(np.full(23, 7), takers=6, groups=3)]
    assert dealt == hand_out(np.full(23, 7), takers=6, groups=3)


def test_the_weight_of_an_item_follows_its_loop_count() -> None:
    program = stream_program(items=3)
    loop = dataclasses.replace(program.instructions[1], count=Count(attribute="first"))
    program = dataclasses.replace(
        program,
        instructions=(program.instructions[0], loop, *program.instructions[2:]),
        work=dataclasses.replace(program.work, items=np.array([[1], [10], [4]], dtype=np.int64)),
    )
    weights = item_weights(program, machine("h100"))
    assert weights.tolist() == [2 * 1 + 2, 2 * 10 + 2, 2 * 4 + 2]
    plan = plan_launch(dataclasses.replace(program, work=dataclasses.replace(program.work, grid=3)), machine("h100"))
    assert plan.representative == 1


def test_a_weft_level_product_weighs_as_many_cycles_as_it_multiplies() -> None:
    """16 x 64 x 16 products at 1,024 a cycle (H100, a subpartition): 32 cycles, in place of one."""
    program, m = stream_program(items=1, steps=1), machine("h100")
    product = Instruction(op="WMMA", shape=(16, 64, 16), dtype="fp16", form="rr")
    longer = dataclasses.replace(program, instructions=(product, *program.instructions[1:]))
    cycles = 2 * 16 * 64 * 16 * m.subpartitions / m.tensor_flops_per_cycle
    assert item_weights(longer, m)[0] - item_weights(program, m)[0] == cycles - 1


def test_a_group_over_the_edge_does_not_represent_the_chip() -> None:
    """The last item starts behind the tensor's end: it loads nothing, so it would be faster than all others."""
    over = stream_program(blocks=56, steps=8, items=8, grid=8)
    assert plan_launch(over, machine("h100")).representative == 3  # of seven
