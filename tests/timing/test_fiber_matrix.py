"""Weft-level matrix instructions: queue, groups, operands, accumulators, and the bits of what they read and write."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine_builder import R, op
from fiber_builder import LATENCY, at, bind, bit, fiber_machine, fiber_program, issued, nops, run_fiber, spans, states
from heddle.errors import UserError
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import TENSOR
from heddle.machine import machine
from heddle.sim.reference.chip import Chip
from heddle.sim.result import EventKind

SHAPE = (16, 32, 16)
PRODUCTS = 2 * 16 * 32 * 16 // (4096 // 4)  # cycles on a subpartition of the H100
A, B, C = 4, 8, 16  # registers of the operands and of the accumulator
TAIL = 64  # wgmma_tail_cycles of the H100


def wmma(
    acc: int = 32,
    a: Register | None = None,
    b: Register | None = None,
    *,
    first: bool = False,
    form: str = "rr",
    **more: Any,
) -> Instruction:
    """Return a WMMA m16n32k16; `first`: without an accumulator to add to."""
    sources = [a or at(16, count=A), b or at(24, count=B)]
    if form[1] == "s":
        sources[1] = R(RZ)
    if form[0] == "s":
        sources[0] = R(RZ)
    src = (*sources, R(RZ)) if first else tuple(sources)
    return op("WMMA", dst=at(acc, count=C), src=src, shape=SHAPE, form=form, dtype="fp16", **more)


def run(code: dict[int, list[Instruction]], prologue: list[Instruction] | None = None, **changes: Any) -> Chip:
    return run_fiber(fiber_program(code, prologue=prologue or [], registers=128), fiber_machine(**changes))


def tensor(chip: Chip) -> list[tuple[int, int, int]]:
    """Return weft, start and end of each matrix instruction."""
    return spans(chip, EventKind.TENSOR)


def test_a_matrix_instruction_starts_after_its_issue_and_takes_its_products() -> None:
    chip = run({0: [wmma()]})
    assert tensor(chip) == [(0, 1, 1 + PRODUCTS)]
    assert spans(chip, EventKind.COMPLETE) == [(0, 1 + PRODUCTS + TAIL, 1 + PRODUCTS + TAIL)]


def test_counters_are_released_when_operands_are_read_and_when_the_result_is_there() -> None:
    chip = run({0: [wmma(read=0, write=1), op("NOP", wait=[0]), op("NOP", wait=[1])]})
    assert issued(chip, 0)[1:3] == [1 + PRODUCTS, 1 + PRODUCTS + TAIL]
    assert states(chip, 0)["MATRIX_SCOREBOARD"] > 0


def test_instructions_of_one_subpartition_follow_each_other() -> None:
    chip = run({0: [wmma()], 4: [wmma(64)]})
    assert [end - begin for _, begin, end in tensor(chip)] == [PRODUCTS, PRODUCTS]
    assert tensor(chip)[1][1] == tensor(chip)[0][2]


def test_each_subpartition_has_a_matrix_unit() -> None:
    chip = run({w: [wmma(32 if w < 2 else 64)] for w in range(4)})
    assert [begin for _, begin, _ in tensor(chip)] == [1, 1, 1, 1]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_queue_holds_its_depth(depth: int) -> None:
    """Instruction i issues once i - depth has started."""
    chip = run({0: [wmma(first=True)] * 8}, matrix_queue_depth=depth)
    starts = [begin for _, begin, _ in tensor(chip)]
    assert issued(chip, 0)[depth : depth + 3] == [max(depth + i, starts[i]) for i in range(3)]
    assert states(chip, 0)["GMMA"] > 0


def test_operands_from_shared_memory_can_take_longer_than_the_products() -> None:
    chip = run({0: [wmma(form="ss")]})
    ((_, begin, end),) = tensor(chip)
    assert end - begin == max(PRODUCTS, (16 * 16 + 32 * 16) * 2 // 128)


def test_operands_in_one_bank_can_take_longer_than_the_products() -> None:
    """Four registers of A, eight of B and sixteen of the accumulator lie in two banks, half in each."""
    chip = run({0: [wmma()]}, tensor_flops_per_cycle=8192 * 8)
    ((_, begin, end),) = tensor(chip)
    assert end - begin == (A + B + C) // 2


READS = [op("FFMA", dst=at(1), src=(R(2),))] * 4  # one register each, of one bank


def test_register_accumulators_take_their_share_of_the_ports() -> None:
    """16 registers in 16 cycles of two banks: a half; a SIMD read takes two cycles of its bank."""
    plain = run({0: [*nops(10), *READS]}, tensor_port_share=0.0)
    beside = run({0: [wmma(), *nops(9), *READS]}, tensor_port_share=0.0)
    assert issued(plain, 0)[10:14] == [10, 11, 12, 13]
    assert issued(beside, 0)[10:14] == [10, 11, 13, 15]


@pytest.mark.parametrize("first", [False, True])
def test_no_matrix_instruction_takes_less_of_the_ports_than_wgmma_does(first: bool) -> None:
    """With three quarters taken a SIMD read takes four cycles of its bank, whatever accumulators are read."""
    beside = run({0: [wmma(first=first), *nops(9), *READS]}, tensor_port_share=0.75)
    assert issued(beside, 0)[10:13] == [10, 13, 17]


def test_the_unit_runs_empty_when_another_weft_has_its_turn() -> None:
    """Wefts 0 and 4 share a subpartition; the scheduler prefers the younger one."""
    code = {0: [wmma(), wmma()], 4: [wmma(acc=64)]}
    first = 1 + PRODUCTS
    assert tensor(run(code, wgmma_switch_cycles=64)) == [
        (4, 1, first),
        (0, first + 64, first + 64 + PRODUCTS),
        (0, first + 64 + PRODUCTS, first + 64 + 2 * PRODUCTS),
    ]


def test_a_first_step_reads_no_accumulator() -> None:
    chip = run({0: [wmma(first=True), *nops(9), *READS]}, tensor_port_share=0.0)
    assert issued(chip, 0)[10:14] == [10, 11, 12, 13]


def test_operand_ports_are_charged_when_the_instruction_starts() -> None:
    """B lies in subpartition 1: four reads on each of its ports from cycle 1 on; a local read there waits."""
    chip = run({0: [wmma(b=at(24, 1, B))], 1: [op("NOP"), op("FFMA", dst=at(1), src=(R(2),))]})
    assert issued(chip, 1)[1] == 1 + B // 2 - 1


@pytest.mark.parametrize(("steps", "start"), [(0, 8), (1, 4), (2, 2)])
def test_a_busy_port_delays_the_start_less_what_is_read_ahead(steps: int, start: int) -> None:
    """Eight registers of one bank keep its port until 8; a step of eight columns takes four cycles."""
    reads = op("FFMA", dst=at(1), src=tuple(at(n, 0) for n in range(64, 80, 2)))
    chip = run({0: [op("NOP"), wmma(first=True)], 1: [reads]}, operand_prefetch_steps=steps)
    assert tensor(chip)[0][1] == start


# --- groups


def grouped(**more: Any) -> Instruction:
    return wmma(b=at(24, 0, B), first=True, group=True, **more)


def test_a_group_starts_together_when_the_fourth_has_issued() -> None:
    chip = run({w: [*nops(3 * w), grouped()] for w in range(4)})
    assert [begin for _, begin, _ in tensor(chip)] == [10, 10, 10, 10]


def test_a_group_reads_b_once() -> None:
    """Each member reads A of its own: four registers; B is in subpartition 0 and is given once."""
    (sm,) = run({w: [grouped()] for w in range(4)}).sms.values()
    assert (sm.arbiter.shared, sm.arbiter.crossed) == (3 * B, 3 * B)


def test_a_group_fetches_b_from_shared_memory_once() -> None:
    together = run({w: [wmma(first=True, form="rs", group=True)] for w in range(4)})
    apart = run({w: [wmma(first=True, form="rs")] for w in range(4)})
    b = 32 * 16 * 2
    assert [next(iter(chip.sms.values())).shared.bytes for chip in (together, apart)] == [b, 4 * b]


def test_later_instructions_of_a_queue_wait_for_an_open_group() -> None:
    code = {0: [grouped(), wmma(64, first=True)], 1: [*nops(30), grouped()], 2: [grouped()], 3: [grouped()]}
    starts = [(weft, begin) for weft, begin, _ in tensor(run(code))]
    assert starts == [(0, 31), (1, 31), (2, 31), (3, 31), (0, 31 + PRODUCTS)]


def test_groups_in_different_orders_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups reach two queues in opposite orders: neither can start."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)
    code = {w: [grouped(write=0), op("NOP", wait=[0])] for w in (0, 2, 3, 5, 6, 7)}
    late = [op("NOP", stall=15), grouped(write=0), op("NOP", wait=[0])]
    code |= {1: late, 4: late}
    with pytest.raises(UserError, match="deadlock") as error:
        run(code)
    assert "cycle of waits in the matrix queues: subpartition 0 has weft 0 first" in str(error.value)


def test_a_group_without_its_fourth_member_is_an_error() -> None:
    with pytest.raises(UserError, match=r"operations never started: weft 0 at pc 1, weft 1 at pc \d+, weft 2"):
        run({w: [grouped()] for w in range(3)})


def test_a_drain_that_never_ends_names_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)
    with pytest.raises(UserError, match="waits until nothing is in flight on the pool; not started: weft 0 at pc 1"):
        run({0: [grouped(), op("SETFIBER", fibers=32, all_scope=True)]})


def test_members_of_a_group_have_one_shape() -> None:
    odd = dataclasses.replace(grouped(), shape=(16, 32, 8), src=(at(16, count=2), at(24, 0, 4), R(RZ)))
    with pytest.raises(UserError, match="all four need one opcode, shape, form and type"):
        run({0: [grouped()], 1: [odd], 2: [grouped()], 3: [grouped()]})


def test_b_of_a_group_is_consumed_by_each_members_scoped_bit() -> None:
    """B8: held for four readers, one fetch, four scoped consumptions; the producer goes on after all of them."""
    produce = [bind(hold=True, readers=(0, 1, 2, 3)), op("MOV", dst=at(24, count=B))]
    code = {4: [*produce, *produce]} | {w: [bind(1, scoped=True), grouped()] * 2 for w in range(4)}
    chip = run(code, [bit("empty", at(24, count=8), True)])
    read = [end for _, _, end in tensor(chip)]
    second = issued(chip, 4)[3]
    assert second == read[0] + chip.machine.busy_bit_broadcast_cycles
    assert chip.warnings == []


def test_a_group_consumes_its_own_a_plainly_and_shared_b_scoped() -> None:
    """B8 with A plain: one code of four producers writes each member's A; a fifth weft writes B for all four."""
    own = [bind(hold=True), op("MOV", dst=at(16, count=A))]
    shared = [bind(hold=True, readers=(0, 1, 2, 3)), op("MOV", dst=at(24, count=B))]
    take = [bind(0, 1, scoped=[1]), grouped()]
    code = {w: take * 3 for w in range(4)} | {w: own * 3 for w in range(4, 8)} | {8: shared * 3}
    empty = [bit("empty", at(24, count=8), True), *(bit("empty", at(16, place, 4), True) for place in range(4))]
    chip = run(code, empty)
    read, delay = [end for _, _, end in tensor(chip)][::4], chip.machine.busy_bit_broadcast_cycles
    assert issued(chip, 5)[3] == read[0]
    assert issued(chip, 8)[3] == read[0] + delay + 1  # weft 4 has the slot of the cycle before
    assert issued(chip, 5)[5] == read[1]
    assert chip.warnings == []


# --- bits


def test_a_chain_does_not_wait_for_its_own_accumulator() -> None:
    chip = run({0: [wmma(first=True), wmma(), wmma()]})
    assert issued(chip, 0)[:3] == [0, 1, 2]


def test_only_the_youngest_of_a_chain_makes_the_accumulator_readable() -> None:
    chip = run({0: [wmma(first=True), wmma(), wmma(), op("FADD", dst=at(1), src=(at(32),))]})
    assert issued(chip, 0)[3] == 1 + 3 * PRODUCTS + TAIL


def test_another_weft_sees_no_partial_sum() -> None:
    chip = run({0: [wmma(first=True), wmma()], 1: [*nops(3), op("FADD", dst=at(1), src=(at(32, 0),))]})
    assert issued(chip, 1)[3] == 1 + 2 * PRODUCTS + TAIL + 1


def test_a_chain_that_goes_on_after_its_write_back_waits_for_nobody() -> None:
    wait = PRODUCTS + TAIL + 2
    chip = run({0: [wmma(first=True), *nops(wait), wmma()]})
    assert "POOL_EMPTY" not in states(chip, 0)


def test_operands_are_consumed_when_they_have_been_read_and_no_cycle_before() -> None:
    for late, reason in ((0, {"POOL_FULL": 1}), (1, {})):
        code = {0: [bind(0), wmma(first=True), *nops(PRODUCTS - 1 + late), op("MOV", dst=at(16, count=A))]}
        chip = run(code, [bit("full", at(16, count=4), True)])
        assert {k: v for k, v in states(chip, 0).items() if k.startswith("POOL")} == reason


def test_the_result_can_be_read_at_its_write_back_and_no_cycle_before() -> None:
    ready = 1 + PRODUCTS + TAIL
    for late, reason in ((-1, {"POOL_EMPTY": 1}), (0, {})):
        chip = run({0: [wmma(first=True), *nops(ready - 1 + late), op("FADD", dst=at(1), src=(at(32),))]})
        assert {k: v for k, v in states(chip, 0).items() if k.startswith("POOL")} == reason


def test_the_last_step_into_a_channel_hands_the_sum_over() -> None:
    """D1: the chain accumulates in 32.., its last step writes and holds 64..; the consumer gives it back."""
    last = dataclasses.replace(wmma(64), src=(at(16, count=A), at(24, count=B), at(32, count=C)))
    step = [wmma(first=True), wmma(), bind(hold=True), last]
    take = [bind(0), op("FADD", dst=at(1), src=(at(64, 0, C),))]
    chip = run({0: step * 3, 1: take * 3}, [bit("empty", at(64 + 8 * i, count=8), True) for i in (0, 1)])
    assert chip.warnings == []
    completes = [begin for _, begin, _ in spans(chip, EventKind.COMPLETE)][2::3]
    assert all(issue > done for issue, done in zip(issued(chip, 1)[1::2], completes, strict=False))


def test_loads_products_and_an_epilogue_pass_data_on() -> None:
    """H1: a loader holds A in two stages, the product consumes them, its last step is a channel to the epilogue."""
    stages = [at(16, count=A), at(20, count=A)]
    load = [row for i in range(4) for row in (bind(hold=True), op("LDS", dst=stages[i % 2], src=(at(1),), bytes=512))]
    last = dataclasses.replace(wmma(64), src=(stages[1], at(24, count=B), at(32, count=C)))
    product = [bind(0), wmma(first=True), bind(0, hold=True), last] * 2
    epilogue = [bind(0), op("STS", src=(at(64, 0, C),), bytes=2048)] * 2
    empty = [bit("empty", at(16, count=8), True), *(bit("empty", at(64 + 8 * i, count=8), True) for i in (0, 1))]
    chip = run({0: product, 1: epilogue, 4: load}, empty)
    assert chip.warnings == []
    completes = [begin for _, begin, _ in spans(chip, EventKind.COMPLETE)][1::2]
    assert all(store > done for store, done in zip(issued(chip, 1)[1::2], completes, strict=False))
    read = [end for _, _, end in tensor(chip)]
    assert issued(chip, 4)[5] >= read[0]  # the third load reuses the first stage


# --- other machines


def test_without_wgmma_the_tail_is_that_of_hmma() -> None:
    base = machine("a100+fiber")
    m = dataclasses.replace(base, sms=1, set_fiber_num_cycles=32)
    p = dataclasses.replace(fiber_program({0: [wmma(first=True)]}, registers=128), architecture="sm_80")
    chip = run_fiber(p, m)
    ((_, begin, end),) = tensor(chip)
    ((_, complete, _),) = spans(chip, EventKind.COMPLETE)
    assert end - begin == 2 * PRODUCTS  # half the rate of the H100
    assert complete - end == base.ops["HMMA"].latency_cycles - int(base.ops["HMMA"].initiation_cycles)


def tensor_memory_program(code: dict[int, list[Instruction]], prologue: list[Instruction]) -> Chip:
    p = fiber_program(code, prologue=prologue, registers=128, tensor_memory_columns=64)
    m = dataclasses.replace(machine("b200+fiber"), sms=1, set_fiber_num_cycles=32)
    return run_fiber(dataclasses.replace(p, architecture="sm_100"), m)


def test_accumulators_in_tensor_memory_have_bits_of_their_own() -> None:
    """The load of columns 0 to 31 waits for the product; the next product waits until they have been read."""
    acc = Register(0, 1, False, TENSOR)
    mma = op("WMMA.TM", dst=acc, src=(at(0, count=8), R(RZ), R(RZ)), shape=(32, 32, 16), form="rs", dtype="fp16")
    load = op("LDTM", dst=at(64, count=32), src=(acc,), bytes=32 * 32 * 4)
    code = {0: [bind(hold=True), mma, bind(hold=True), mma], 4: [bind(0), load, bind(0), load]}
    meet = op("SETFIBER", fibers=32, all_scope=True)  # sets E of all columns
    chip = tensor_memory_program(code, [meet])
    complete = [begin for _, begin, _ in spans(chip, EventKind.COMPLETE)]
    transfer = 32 * 32 * 4 // (chip.machine.tensor_memory_read_bytes_per_cycle // 4)
    loads, products = issued(chip, 4), issued(chip, 0)
    assert loads[1] == complete[0]
    assert products[-2] == loads[1] + transfer  # before the EXIT
    assert loads[3] == complete[1]
    assert chip.warnings == []


@pytest.mark.parametrize(("before", "waits"), [(2, 2), (1, LATENCY), (0, LATENCY)])
def test_a_set_wins_over_a_write_back_that_falls_on_its_cycle(before: int, waits: int) -> None:
    """A younger write issues some cycles before accumulators are written back, which clears what is set until then."""
    written = 1 + PRODUCTS + TAIL
    code = [wmma(first=True), *nops(written - 1 - before), op("MOV", dst=at(36)), op("FADD", dst=at(80), src=(at(36),))]
    *_, younger, reader, _ = issued(run({0: code}), 0)
    assert (younger, reader) == (written - before, written - before + waits)
