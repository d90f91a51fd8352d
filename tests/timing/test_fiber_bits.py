"""Full and empty bits cycle by cycle: what sets and clears them, who sees it when, and the rules of their use."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine_builder import EXIT, op, program, role
from fiber_builder import (
    EMPTY,
    HELD,
    LATENCY,
    POOL,
    READ,
    L,
    at,
    bind,
    bit,
    fiber_machine,
    fiber_program,
    issued,
    nops,
    read,
    run_fiber,
    states,
    write,
)
from heddle.errors import UserError
from heddle.ir.warp import Instruction
from heddle.ir.warp_fiber import FiberNote
from heddle.sim.reference.chip import Chip


def run(
    code: dict[int, list[Instruction]],
    prologue: list[Instruction] | None = None,
    scheduler: str = "gty",
    **changes: Any,
) -> Chip:
    """Run wefts on the test machine. With "lrr" a weft that becomes ready issues before one that has just issued."""
    return run_fiber(fiber_program(code, prologue=prologue or []), fiber_machine(**changes), scheduler)


def stuck(monkeypatch: pytest.MonkeyPatch, code: dict[int, list[Instruction]], prologue: list[Instruction]) -> str:
    """Return the report of a program that deadlocks."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)
    with pytest.raises(UserError) as error:
        run(code, prologue)
    return str(error.value)


# --- rows of the table: what sets and clears E and F


def test_an_issue_that_writes_a_register_sets_e() -> None:
    chip = run({0: [write(), read(at(POOL))]})
    assert issued(chip, 0)[:2] == [0, LATENCY]
    assert states(chip, 0)["POOL_EMPTY"] == LATENCY - 1


def test_an_issue_that_consumes_a_register_sets_e(monkeypatch: pytest.MonkeyPatch) -> None:
    code = {0: [bind(0), read(at(POOL)), read(at(POOL), to=2)]}
    assert "waits for a datum in R16 of subpartition 0" in stuck(monkeypatch, code, [])


def test_depbar_sets_e(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "waits for a datum in R16" in stuck(monkeypatch, {0: [bit("empty", at(POOL), True), read(at(POOL))]}, [])


def test_setfiber_with_all_sets_e(monkeypatch: pytest.MonkeyPatch) -> None:
    code = {0: [op("SETFIBER", fibers=32, all_scope=True), read(at(POOL))]}
    assert "waits for a datum in R16" in stuck(monkeypatch, code, [])


def test_write_back_clears_e() -> None:
    assert issued(run({0: [write(), read(at(POOL))]}, EMPTY), 0)[1] == LATENCY


def test_depbar_clears_e() -> None:
    chip = run({0: [bit("empty", at(POOL), False), read(at(POOL))]}, EMPTY)
    assert issued(chip, 0)[:2] == [0, 1]


def test_an_issue_that_holds_sets_f(monkeypatch: pytest.MonkeyPatch) -> None:
    code = {0: [bind(hold=True), write(), *nops(9), write()]}
    assert "waits for R16 of subpartition 0 to be consumed" in stuck(monkeypatch, code, [])


def test_depbar_sets_f(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "to be consumed" in stuck(monkeypatch, {0: [bit("full", at(POOL), True), write()]}, [])


def test_consumption_clears_f() -> None:
    chip = run({0: [bind(0), read(at(POOL)), write()]}, HELD)
    assert issued(chip, 0)[:3] == [0, 1, 1 + READ]
    assert states(chip, 0)["POOL_FULL"] == READ - 1


def test_depbar_clears_f() -> None:
    assert issued(run({0: [bit("full", at(POOL), False), write()]}, HELD), 0)[:2] == [0, 1]


def test_setfiber_with_all_clears_f() -> None:
    chip = run({0: [op("SETFIBER", fibers=32, all_scope=True), write()]}, HELD)
    assert "POOL_FULL" not in states(chip, 0)


def test_reads_that_are_not_bound_change_no_bit() -> None:
    chip = run({0: [read(at(POOL)), read(at(POOL), to=2), read(at(POOL), to=3)]})
    assert issued(chip, 0)[:3] == [0, 1, 2]


def test_an_unbound_read_does_not_release_a_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "to be consumed" in stuck(monkeypatch, {0: [read(at(POOL)), *nops(9), write()]}, HELD)


# --- rules 1 to 11


def test_rule_1_an_operation_may_consume_what_it_tests() -> None:
    assert issued(run({0: [bind(0), read(at(POOL))]}, HELD), 0)[:2] == [0, 1]


def test_rule_1_every_register_of_a_group_is_tested() -> None:
    prologue = [bit("empty", at(POOL + 3), True)]
    chip = run({0: [read(at(POOL, count=4))], 1: [*nops(20), bit("empty", at(POOL + 3, 0), False)]}, prologue)
    assert issued(chip, 0)[0] == 20 + 1 + L


@pytest.mark.parametrize(("at_cycle", "issue"), [(LATENCY - 2, LATENCY), (LATENCY - 1, 30)])
def test_rule_2_a_set_wins_over_a_clear_of_the_same_cycle(at_cycle: int, issue: int) -> None:
    """The write-back clears E in cycle 4; a set that is seen from cycle 3 on is overwritten, one from 4 on stays."""
    before = nops(at_cycle - 1)
    repair = [*nops(28), bit("empty", at(POOL, 0), False)]  # from subpartition 1: seen at 28 + 1 + L
    chip = run({0: [write(), *before, bit("empty", at(POOL), True), *nops(3 - at_cycle), read(at(POOL))], 1: repair})
    assert issued(chip, 0)[-2] == issue


@pytest.mark.parametrize("delay", [0, 1, 2, 5])
def test_rule_3_a_write_back_is_seen_later_elsewhere(delay: int) -> None:
    chip = run({0: [write()], 1: [*nops(LATENCY - 1), read()]}, busy_bit_broadcast_cycles=delay)
    seen_set = delay < LATENCY - 1  # the issue itself is seen from 1 + delay on
    assert issued(chip, 1)[-2] == (LATENCY + delay if seen_set else LATENCY - 1)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_rule_3_an_issue_is_seen_later_elsewhere(delay: int) -> None:
    """A reader that comes before the set is seen still issues: only the bits order them."""
    early = run({0: [write()], 1: [*nops(delay), read()]}, busy_bit_broadcast_cycles=delay)
    late = run({0: [write()], 1: [*nops(1 + delay), read()]}, busy_bit_broadcast_cycles=delay)
    assert issued(early, 1)[delay] == delay
    assert issued(late, 1)[1 + delay] == LATENCY + delay


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_rule_3_a_depbar_is_seen_later_elsewhere(delay: int) -> None:
    code = {0: [bit("empty", at(POOL), False)], 1: [read()]}
    assert issued(run(code, EMPTY, busy_bit_broadcast_cycles=delay), 1)[0] == 1 + delay


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_rule_4_a_consumption_elsewhere_is_seen_later_by_the_writer(delay: int) -> None:
    chip = run({0: [write()], 1: [bind(0), read()]}, HELD, busy_bit_broadcast_cycles=delay)
    assert issued(chip, 0)[0] == 1 + READ + delay


def test_rule_4_own_bank_conflicts_delay_the_consumption() -> None:
    reads = op("FFMA", dst=at(1), src=(at(POOL), at(POOL + 2), at(POOL + 4)))
    assert issued(run({0: [bind(0), reads, write()]}, HELD), 0)[2] == 1 + READ + 2


def test_rule_4_write_back_comes_after_consumption() -> None:
    machine = fiber_machine()
    ops = dict(machine.ops) | {"FADD": dataclasses.replace(machine.ops["FADD"], latency_cycles=1)}
    p = fiber_program({0: [read(at(POOL), to=POOL + 1), read(at(POOL + 1))]})
    chip = run_fiber(p, dataclasses.replace(machine, ops=ops))
    assert issued(chip, 0)[:2] == [0, READ]


def test_rule_5_a_bind_waits_with_its_weft_while_others_issue() -> None:
    code = {0: [bind(0), read(at(POOL)), write()], 4: [*nops(20), bit("empty", at(POOL, 0), False), write(POOL + 1)]}
    chip = run(code, [*EMPTY, *HELD], scheduler="lrr")
    assert issued(chip, 4)[:20] == [0, *range(2, 21)]  # the bind takes cycle 1
    cleared = issued(chip, 4)[20]
    assert issued(chip, 0)[1:3] == [cleared + 1, cleared + 1 + READ]


def test_rule_5_a_bind_is_spent_by_the_next_instruction() -> None:
    chip = run({0: [bind(0), read(at(POOL)), read(at(POOL + 1), to=2), read(at(POOL + 1), to=3)]}, HELD)
    assert issued(chip, 0)[:4] == [0, 1, 2, 3]


def test_rule_6_a_partner_that_is_predicated_off_drops_the_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weft 4 (rank 0 of its role) consumes its R16 and would read it again: it hangs. Weft 5 consumes nothing."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)
    reads = [op("FADD", dst=at(1), src=(at(POOL),)), op("FADD", dst=at(2), src=(at(POOL),))]
    guarded = op("FADD", dst=at(1), src=(at(POOL),), by="role")
    rows = [op("SETFIBER", fibers=32 * 6), EXIT, bind(0), guarded, *reads, EXIT]
    roles = [role(0, 1, name="first"), role(1, 3, first=1, name="idle"), role(2, 2, first=4, name="pair")]
    p = program(*rows, roles=roles, mode="fiber", fiber=FiberNote(registers=32, pool_first=16, pool_limit=32))
    with pytest.raises(UserError) as error:
        run_fiber(p)
    assert "weft 4 (pair)" in str(error.value)
    assert "weft 5 (pair)" not in str(error.value)


def test_rule_8_the_register_form_acts_at_its_own_issue() -> None:
    code = {0: [*nops(5), bit("empty", at(POOL, count=8), False)], 4: [read(at(POOL + 7, 0))]}
    prologue = [bit("empty", at(POOL, count=8), True)]
    chip = run(code, prologue, scheduler="lrr")
    assert issued(chip, 4)[0] == issued(chip, 0)[5] + 1


def test_rule_9_all_waits_for_what_is_in_flight_on_the_pool() -> None:
    """The write of the pool takes until 4 and is seen everywhere at 4 + L; then the wefts meet."""
    meet = op("SETFIBER", fibers=32, all_scope=True)
    pool, private = run({0: [write(), meet]}), run({0: [write(3), meet]})
    assert issued(pool, 0)[1] == LATENCY + L + 1
    assert issued(private, 0)[1] == 2


def test_rule_9_all_leaves_private_registers_alone() -> None:
    chip = run({0: [op("SETFIBER", fibers=32, all_scope=True), read(at(3))]}, [])
    assert "POOL_EMPTY" not in states(chip, 0)


def test_rule_9_a_value_is_declared_ready_again_after_all() -> None:
    chip = run({0: [op("SETFIBER", fibers=32, all_scope=True), bit("empty", at(POOL), False), read(at(POOL))]})
    assert "POOL_EMPTY" not in states(chip, 0)


def test_rule_9_without_all_nothing_is_drained_or_changed() -> None:
    meet = op("SETFIBER", fibers=32 * 2)
    chip = run({0: [bind(hold=True), write(), meet, *nops(3)], 1: [meet, bind(0), read()]})
    assert issued(chip, 0)[2] == 3
    assert chip.warnings == []


def test_rule_10_a_masked_wefts_operations_complete() -> None:
    meet = op("SETFIBER", fibers=32)
    chip = run(
        {0: [*nops(3), meet, read(at(POOL))], 4: [*nops(2), op("LDS", dst=at(POOL), src=(at(2),), bytes=128), meet]}
    )
    assert "POOL_EMPTY" not in states(chip, 0)  # the load is over long before the meeting is


def test_rule_10_a_masked_wefts_hold_stays() -> None:
    meet = op("SETFIBER", fibers=32)
    chip = run({0: [*nops(3), meet, bind(0), read(at(POOL)), write()], 4: [bind(hold=True), write(), meet]})
    assert states(chip, 0)["POOL_FULL"] == READ - 1


def test_rule_10_an_unconsumed_datum_is_reported() -> None:
    chip = run({0: [bind(hold=True), write()]})
    assert chip.warnings == ["SM 0, slot 0: a datum that nobody consumed is left in R16 of subpartition 0"]


def test_rule_11_a_channel_that_starts_full_keeps_its_producer_out() -> None:
    code = {0: [write()], 1: [*nops(6), bind(0), read()]}
    assert issued(run(code, HELD), 0)[0] == 7 + READ + L
    assert issued(run(code), 0)[0] == 0  # started neither empty nor full: it is overwritten


# --- the paper's bits


def test_on_the_papers_hardware_a_read_keeps_the_writer_out_until_it_is_over() -> None:
    """A read sets F with its issue and clears it at its consumption; bound bits leave an unbound read alone."""
    code = {0: [read(at(POOL)), write()]}
    assert issued(run(code, busy_bits="paper"), 0)[:2] == [0, READ]
    assert issued(run(code), 0)[:2] == [0, 1]


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_on_the_papers_hardware_a_read_elsewhere_is_seen_later(delay: int) -> None:
    """F is seen from 1 + L to 2 + L where the register lies: the write in cycle 1 + L waits for one cycle."""
    code = {0: [*nops(1 + delay), write()], 1: [read()]}
    chip = run(code, busy_bits="paper", busy_bit_broadcast_cycles=delay)
    assert issued(chip, 0)[1 + delay] == READ + delay


def test_on_the_papers_hardware_any_read_wipes_a_hold() -> None:
    assert issued(run({0: [read(at(POOL)), *nops(5), write()]}, HELD, busy_bits="paper"), 0)[6] == 6


# --- scoped bits


def test_a_scoped_consumption_sets_e_in_its_own_view_only() -> None:
    readers = {"readers": (0, 1, 2, 3)}
    code = {0: [bind(hold=True, **readers), write(), *nops(9)]}
    code |= {w: [*nops(12 + w), bind(0, scoped=True), read()] for w in (1, 2, 3)}
    code[4] = [*nops(20), bind(0, scoped=True), read()]
    chip = run(code, scheduler="lrr")
    assert all("POOL_EMPTY" not in states(chip, weft) for weft in code)
    assert chip.warnings == []


def test_a_writer_waits_for_all_parts_of_f() -> None:
    code = {0: [bind(hold=True, readers=(1, 2)), write(), write()]}
    code |= {1: [*nops(10), bind(0, scoped=True), read()], 2: [*nops(15), bind(0, scoped=True), read()]}
    assert issued(run(code), 0)[2] == 16 + READ + L


def test_four_scoped_consumers_take_every_datum_once() -> None:
    """B1: the producer in subpartition 0, one consumer in each; the bits alone keep them in step."""
    produce = [bind(hold=True, readers=(0, 1, 2, 3)), write()] * 3
    code = {0: produce} | {w: [bind(0, scoped=True), read()] * 3 for w in (4, 1, 2, 3)}
    chip = run(code, EMPTY)
    writes, reads = issued(chip, 0)[1::2], [issued(chip, w)[1::2] for w in (4, 1, 2, 3)]
    for datum in range(3):
        assert all(times[datum] >= writes[datum] + LATENCY for times in reads)
    for datum in range(2):
        assert all(times[datum] < writes[datum + 1] for times in reads)


def test_a_plain_slot_beside_a_scoped_one_is_seen_as_consumed_by_all() -> None:
    """A (register 20) is armed in every view, B (POOL) in the consumer's own one only."""
    take = op("FADD", dst=at(1), src=(at(20, 0), at(POOL, 0)))
    code = {1: [bind(0, 1, scoped=[1]), take], 2: [*nops(9), read(at(20, 0))], 3: [*nops(9), read()]}
    chip = run({**code, 0: [*nops(30), op("MOV", dst=at(20))]}, [])
    assert "POOL_EMPTY" in states(chip, 2)
    assert "POOL_EMPTY" not in states(chip, 3)


def test_a_plain_slot_beside_a_scoped_one_gives_back_all_parts() -> None:
    """A is free for its writer after the consumption; of B another reader's part is left."""
    held = [bit("full", at(20), True), bit("full", at(POOL), True)]
    take = op("FADD", dst=at(1), src=(at(20, 0), at(POOL, 0)))
    for register, reason in ((20, set()), (POOL, {"POOL_FULL"})):
        code = {1: [bind(0, 1, scoped=[1]), take], 0: [*nops(9), op("MOV", dst=at(register))]}
        code[2] = [*nops(20), bind(0), read()]  # gives B back for all
        assert {name for name in states(run(code, held), 0) if name.startswith("POOL")} == reason


def test_two_writes_on_their_way_the_first_clears_e() -> None:
    slow = op("LDS", dst=at(POOL), src=(at(1),), bytes=512)
    assert issued(run({0: [slow, write(), read(at(POOL))]}), 0)[2] < issued(run({0: [slow, read(at(POOL))]}), 0)[1]


def test_without_fine_scheduling_there_are_no_bits() -> None:
    assert issued(run({0: [write(), read(at(POOL))]}, fine_scheduling=False), 0)[:2] == [0, 1]
