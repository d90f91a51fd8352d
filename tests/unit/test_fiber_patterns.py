"""Patterns of the busy bits as warp programs: they run to their end, in an order that the state model allows."""

from __future__ import annotations

import pytest

from engine_builder import op
from fiber_builder import at, bind, bit, fiber_machine, fiber_program, run_fiber, trace
from fiber_networks import (
    Compiled,
    accumulator_two_tokens,
    alternating_in_place,
    bits_agree,
    compiled,
    ended,
    follow,
    tokens,
)
from heddle.errors import UserError
from heddle.ir.warp_text import parse_program, print_program
from protocol_model import LITERAL, Network, Rules, search
from protocol_patterns import (
    accumulator_in_place,
    accumulator_to_channel,
    alternating,
    chain,
    copies,
    group,
    literal,
    one_to_one,
    plain_and_scoped,
    scoped,
    several_producers,
    several_reads,
    two_phases,
    without_pairing,
)

SAFE: dict[str, Network] = {
    "A1": one_to_one(4),
    "A2": one_to_one(6, 2),
    "A3": one_to_one(9, 3),
    "A4": several_reads(3, 3),
    "A5": without_pairing(4),
    "B4": copies(3, 3),
    "B5": tokens(3, 2, 2),
    "C1": several_producers(3, 4),
    "C3": several_producers(3, 3, together=True),
    "D1": accumulator_to_channel(3, 3),
    "D2": accumulator_to_channel(4, 3, 2),
    "D3": accumulator_in_place(3, 3),
    "D4": accumulator_two_tokens(3, 3),
    "E1": alternating(4),
    "F1": group(3, 4),
    "F2": group(2, 4, single_writes=True),
    "G1": chain(4, 3, 2),
    "G2": chain(4, 4, 2),
    "ALL, nothing left": two_phases(2),
    "ALL, a datum left": two_phases(2, left_over=True),
}
ONE_SUBPARTITION = {"E2": alternating_in_place(4)}  # both wefts write the same register


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("name", SAFE)
def test_a_pattern_across_subpartitions_is_a_path_of_the_model_to_its_end(name: str, delay: int) -> None:
    case = compiled(SAFE[name])
    chip = run_fiber(case.program, fiber_machine(busy_bit_broadcast_cycles=delay))
    state = follow(case, trace(chip), Rules())
    assert ended(case.network, state)
    assert bits_agree(case, chip, state)


@pytest.mark.parametrize("scheduler", ["gty", "lrr"])
@pytest.mark.parametrize("name", [*SAFE, *ONE_SUBPARTITION])
def test_a_pattern_inside_a_subpartition_is_a_path_of_the_model_to_its_end(name: str, scheduler: str) -> None:
    network = (SAFE | ONE_SUBPARTITION)[name]
    case = compiled(network, [4 * i for i in range(len(network.wefts))])
    chip = run_fiber(case.program, scheduler=scheduler)
    state = follow(case, trace(chip), Rules())
    assert ended(case.network, state)
    assert bits_agree(case, chip, state)


@pytest.mark.parametrize("name", ["A1", "B5", "E1", "G1"])
def test_a_pattern_survives_its_text(name: str) -> None:
    case = compiled(SAFE[name])
    assert parse_program(print_program(case.program)) == case.program


@pytest.mark.parametrize("network", [tokens(2, 1, 1), accumulator_two_tokens(2, 2), alternating_in_place(3)])
def test_the_model_finds_the_patterns_of_tokens_safe(network: Network) -> None:
    assert search(network).outcome == "safe"


def test_the_check_notices_an_order_that_the_model_forbids() -> None:
    case = compiled(one_to_one(2))
    changes = trace(run_fiber(case.program))
    issue = next(i for i, change in enumerate(changes) if change.kind == "issue" and change.pc in case.steps)
    with pytest.raises(AssertionError, match="is not among"):
        follow(case, [*changes[:issue], *changes[issue + 1 :]], Rules())


@pytest.mark.parametrize("name", ["A5", "D4"])
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_patterns_without_binds_run_on_the_papers_hardware(name: str, delay: int) -> None:
    case = compiled(SAFE[name])
    chip = run_fiber(case.program, fiber_machine(busy_bits="paper", busy_bit_broadcast_cycles=delay))
    state = follow(case, trace(chip), LITERAL)
    assert ended(case.network, state)
    assert bits_agree(case, chip, state)


LONG = 40  # cycles: longer than a write-back and a consumption together


def deadlock(monkeypatch: pytest.MonkeyPatch, pauses: dict[int, int]) -> str:
    """Return the report of the paper's sequence with pauses in front of a side's unpaired bit."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 200)
    case = compiled(literal(3), pauses=pauses)
    with pytest.raises(UserError) as error:
        run_fiber(case.program, fiber_machine(busy_bits="paper"))
    return str(error.value)


@pytest.mark.parametrize("side", [0, 1], ids=["producer", "consumer"])
def test_the_papers_sequence_deadlocks_where_the_bit_of_a_side_is_late(
    monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    text = deadlock(monkeypatch, {side: LONG})
    assert "weft 0 (weft0) of SM 0 at pc" in text
    assert "waits for R16 of subpartition 0 to be consumed, which weft1 gives back at pc" in text
    assert "waits for a datum in R16 of subpartition 0, which weft0 writes at pc" in text
    assert "cycle of waits: weft 0 -> weft 1 -> weft 0" in text


def test_the_papers_sequence_runs_by_luck_where_both_bits_are_prompt() -> None:
    case = compiled(literal(3))
    chip = run_fiber(case.program, fiber_machine(busy_bits="paper"))
    state = follow(case, trace(chip), LITERAL)
    assert ended(case.network, state)
    assert bits_agree(case, chip, state)


def test_the_report_names_source_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = deadlock(monkeypatch, {0: LONG})
    assert text.count("kernel.py:") == 4


@pytest.mark.parametrize("side", ["pair_consumer", "pair_producer"])
def test_pairing_one_side_alone_still_deadlocks(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 200)
    case = compiled(literal(3, **{side: True}), pauses={0: LONG, 1: LONG})
    with pytest.raises(UserError, match="deadlock: nothing issues after cycle"):
        run_fiber(case.program)


def scoped_channel(data: int) -> Compiled:
    """B1: four consumers of one register; the model sees their scoped bits as a register for each of them."""
    network, wefts = scoped(data, 4), [0, 4, 1, 2, 3]
    readers = (0, 1, 2, 3)
    code = {0: [bind(hold=True, readers=readers), op("MOV", dst=at(16))] * data}
    code |= {weft: [bind(0, scoped=True), op("FADD", dst=at(1), src=(at(16, 0),))] * data for weft in wefts[1:]}
    p = fiber_program(code, prologue=[bit("empty", at(16), True)])
    steps = {}
    for number, weft in enumerate(wefts):
        first = 2 if weft == 0 else p.roles[weft].entry
        steps |= {first + 2 * i + 1: (number, i) for i in range(data)}
    return Compiled(network, wefts, p, steps)


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("scheduler", ["gty", "lrr"])
def test_scoped_consumers_are_a_path_of_the_model_to_its_end(delay: int, scheduler: str) -> None:
    case = scoped_channel(4)
    chip = run_fiber(case.program, fiber_machine(busy_bit_broadcast_cycles=delay), scheduler)
    state = follow(case, trace(chip), Rules())
    assert ended(case.network, state)
    assert bits_agree(case, chip, state)


def mixed_channels(data: int) -> Compiled:
    """B8 with A plain: weft 5 holds R16 of subpartition 1 for 1 and 2; wefts 1 and 2 also take R20 of wefts 9 and 10.

    The four wefts of A's producers and B's consumers lie pairwise in one subpartition, so that one code names them.
    """
    network, wefts = plain_and_scoped(data, 2), [5, 9, 10, 1, 2]
    code = {5: [bind(hold=True, readers=(1, 2)), op("MOV", dst=at(16))] * data}
    code |= {weft: [bind(hold=True), op("MOV", dst=at(20))] * data for weft in (9, 10)}
    take = [bind(0, 1, scoped=[1]), op("FADD", dst=at(1), src=(at(20), at(16, 1)))]
    code |= {weft: take * data for weft in (1, 2)}
    empty = [bit("empty", at(16, 1), True), *(bit("empty", at(20, place), True) for place in (1, 2))]
    p = fiber_program(code, prologue=empty)
    entries = {weft: p.roles[weft].entry for weft in wefts}
    steps = {entries[weft] + 2 * i + 1: (number, i) for number, weft in enumerate(wefts) for i in range(data)}
    return Compiled(network, wefts, p, steps)


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("scheduler", ["gty", "lrr"])
def test_consumers_of_a_plain_and_a_scoped_operand_are_a_path_of_the_model(delay: int, scheduler: str) -> None:
    case = mixed_channels(4)
    chip = run_fiber(case.program, fiber_machine(busy_bit_broadcast_cycles=delay), scheduler)
    state = follow(case, trace(chip), Rules())
    assert ended(case.network, state)
    assert chip.warnings == []
