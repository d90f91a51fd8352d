"""The read-port arbiter and the crossbar, cycle by cycle."""

from __future__ import annotations

import dataclasses

import pytest

from engine_builder import R, op
from fiber_builder import at, fiber_machine, fiber_program, issued, nops, run_fiber, states
from heddle.errors import UserError
from heddle.ir.warp import Instruction, Register
from heddle.sim.result import Stall


def x(*sources: Register, to: int = 1) -> Instruction:
    """An instruction with sources by absolute address."""
    return op("FFMA", dst=at(to), src=sources)


def figure(weft: int, bank: int) -> Instruction:
    """What each weft of the paper's example reads: ports of two subpartitions, all registers different."""
    ports = {0: (0, 2), 1: (0, 3), 2: (1, 2), 3: (1, 3)}[weft]
    return x(*(at(16 + 2 * weft + bank, place) for place in ports))


def test_the_papers_example_of_the_arbiter() -> None:
    """At t, start 0: wefts 0 and 3 are granted, 1 and 2 denied; from t + 1 on all four are, and stay staggered."""
    code = {weft: [figure(weft, i % 2) for i in range(6)] for weft in range(4)}
    chip = run_fiber(fiber_program(code))
    assert [issued(chip, weft)[:6] for weft in range(4)] == [
        [0, 1, 2, 3, 4, 5],
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 4, 5],
    ]
    assert [states(chip, weft).get("READ_PORT", 0) for weft in range(4)] == [0, 1, 1, 0]
    assert next(iter(chip.sms.values())).arbiter.denials == 2


@pytest.mark.parametrize("first", range(4))
def test_the_first_of_the_rotation_is_granted(first: int) -> None:
    """All four want one port; the one that the cycle starts with gets it, then the next in turn."""
    code = {weft: [*nops(first), x(at(16 + 2 * weft, 0))] for weft in range(4)}
    chip = run_fiber(fiber_program(code))
    assert [issued(chip, (first + i) % 4)[first] for i in range(4)] == [first, first + 1, first + 2, first + 3]


def test_one_register_for_all_is_read_once() -> None:
    code = {weft: [x(at(16, 0))] for weft in range(4)}
    chip = run_fiber(fiber_program(code))
    assert [issued(chip, weft)[0] for weft in range(4)] == [0, 0, 0, 0]
    (sm,) = chip.sms.values()
    assert (sm.arbiter.shared, sm.arbiter.crossed, sm.arbiter.denials) == (3, 3, 0)


def test_a_shared_register_beside_another_of_the_port_is_denied() -> None:
    code = {0: [x(at(16, 0))], 1: [x(at(16, 0), at(18, 0))]}
    assert issued(run_fiber(fiber_program(code)), 1)[0] == 1


def test_registers_of_one_port_are_read_one_after_the_other() -> None:
    code = {0: [x(at(16, 1), at(18, 1), at(20, 1)), op("NOP")], 1: nops(9), 2: [op("NOP"), x(at(22, 1))]}
    chip = run_fiber(fiber_program(code))
    assert issued(chip, 0)[1] == 3  # two cycles more
    assert issued(chip, 2)[1] == 3  # the port is free again


def test_the_two_banks_of_a_subpartition_are_ports_of_their_own() -> None:
    code = {0: [x(at(16, 2))], 1: [x(at(17, 2))]}
    chip = run_fiber(fiber_program(code))
    assert issued(chip, 0)[0] == issued(chip, 1)[0] == 0


def test_a_denied_subpartition_loses_the_cycle_for_all_its_wefts() -> None:
    """Subpartition 1 is second in the rotation; its other weft could have issued."""
    code = {4: [x(at(16, 0))], 1: nops(1), 5: [x(at(18, 0))]}
    chip = run_fiber(fiber_program(code))
    assert issued(chip, 5)[0] == 1
    assert states(chip, 1)["NOT_SELECTED"] >= 2
    assert chip.stalls_pc[:, Stall.READ_PORT].sum() == 1


def test_a_local_read_waits_behind_a_remote_one_of_its_cycle() -> None:
    """Subpartition 0 comes after 1 in cycle 1; its reads are collected a cycle later, so it issues all the same."""
    code = {0: [op("NOP"), op("FFMA", dst=at(1), src=(R(2),))], 1: [op("NOP"), x(at(16, 0))]}
    chip = run_fiber(fiber_program(code))
    assert issued(chip, 0)[1] == issued(chip, 1)[1] == 1


def test_a_remote_read_finds_the_port_taken_by_a_local_one() -> None:
    code = {0: [op("FFMA", dst=at(1), src=(R(2),))], 1: [x(at(16, 0))]}
    assert issued(run_fiber(fiber_program(code)), 1)[0] == 1


def test_own_registers_by_absolute_address_go_through_the_arbiter() -> None:
    code = {0: [x(at(16, 2))], 2: [x(at(18))]}
    assert issued(run_fiber(fiber_program(code)), 2)[0] == 1


def test_with_the_scope_of_a_subpartition_own_registers_are_read_as_before() -> None:
    code = {0: [x(at(16), at(18))], 4: [x(at(20))], 2: [x(at(18))]}
    wide, tight = (
        run_fiber(fiber_program(code), fiber_machine(sharing_scope=scope)) for scope in ("sm", "subpartition")
    )
    assert [issued(tight, weft) for weft in code] == [issued(wide, weft) for weft in code]


@pytest.mark.parametrize("place", [0, 1])
def test_with_the_scope_of_a_subpartition_a_named_one_is_refused(place: int) -> None:
    """Even if it is the weft's own: the name would be another subpartition's for another weft of the role."""
    with pytest.raises(UserError, match="sharing_scope"):
        run_fiber(fiber_program({0: [x(at(16, place))]}), fiber_machine(sharing_scope="subpartition"))


def test_a_base_moves_the_register_that_an_index_names() -> None:
    """From base 256 on, index 44 is register 300: the absolute read waits for it."""
    for target in (at(300), R(44)):
        p = fiber_program({0: [op("MOV", dst=target), x(at(300, 0), to=260)]}, registers=512)
        moved = dataclasses.replace(p, roles=(dataclasses.replace(p.roles[0], base=256),))
        assert issued(run_fiber(moved), 0)[1] == 4


def test_the_reuse_cache_saves_a_local_register_of_a_remote_instruction() -> None:
    first = x(Register(16, 1, True, -1), at(16, 1))
    second = x(at(16), at(18))
    with_cache = run_fiber(fiber_program({0: [first, second, op("NOP")], 1: nops(6)}))
    without = run_fiber(
        fiber_program({0: [first, second, op("NOP")], 1: nops(6)}), fiber_machine(register_reuse_cache=False)
    )
    assert issued(with_cache, 0)[2] == 2
    assert issued(without, 0)[2] == 3


def product(*added: Register, second: Register) -> Instruction:
    """A mma.sync on private registers and B; `added`: the accumulators that it reads, its destination without."""
    sources = (at(8, count=4), second, *added)
    return op("HMMA", dst=at(4, count=4), src=sources, shape=(16, 8, 16), dtype="fp16")


LOCAL_B, REMOTE_B = at(2, count=2), at(20, 1, count=2)
ACCUMULATOR_READS = [  # reads of a bank of the weft's own subpartition
    (product(second=LOCAL_B), 5),
    (product(at(12, count=4), second=LOCAL_B), 5),
    (product(R(255), second=LOCAL_B), 3),
    (product(second=REMOTE_B), 4),
    (product(at(12, count=4), second=REMOTE_B), 4),
    (product(at(8, count=4), second=REMOTE_B), 2),  # A and the accumulators are the same registers
    (product(R(255), second=REMOTE_B), 2),
]


@pytest.mark.parametrize(("instruction", "reads"), ACCUMULATOR_READS)
def test_accumulators_of_mma_sync_hold_the_ports_and_no_cycle_longer(instruction: Instruction, reads: int) -> None:
    """An X instruction of another subpartition finds the port free then; one cycle earlier it waits."""
    for early in (0, 1):
        chip = run_fiber(fiber_program({0: [instruction], 2: [*nops(reads - early), x(at(16, 0))]}))
        assert states(chip, 2).get("READ_PORT", 0) == early


@pytest.mark.parametrize(("instruction", "reads"), ACCUMULATOR_READS)
def test_accumulators_of_mma_sync_delay_what_its_weft_does_next(instruction: Instruction, reads: int) -> None:
    assert issued(run_fiber(fiber_program({0: [instruction, op("NOP")]})), 0)[1] == reads
