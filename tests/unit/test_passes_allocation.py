"""Does allocation fit, avoid banks, and does its verifier notice when it is wrong?"""

from __future__ import annotations

from dataclasses import replace

import pytest

import passes_programs as tiny
from heddle.errors import InternalError, UserError
from heddle.ir.tile import RoleBody
from heddle.ir.warp import Instruction
from heddle.machine import machine
from heddle.passes.allocate_registers import AllocateRegisters
from heddle.passes.draft import Draft, DraftProgram, Operand, RoleDraft, Value
from heddle.passes.layout_to_warps import LayoutToWarps
from heddle.passes.liveness import liveness
from heddle.passes.select import SelectInstructions
from heddle.passes.verify_allocation import VerifyAllocation

A100 = machine("a100")


def drafts(registers: int = 255) -> DraftProgram:
    return SelectInstructions().run(LayoutToWarps().run(tiny.ampere(registers=registers), A100), A100)


def straight(*code: Draft) -> DraftProgram:
    """A program of one role with straight-line code."""
    base = drafts()
    body = RoleBody(name="r", warps=1, registers=64, body=())
    exit_row = Draft(row=Instruction(op="EXIT"))
    return replace(base, roles=(RoleDraft(body=body, first_warp=0, code=(*code, exit_row)),))


def test_dead_register_is_not_live_after_its_last_read() -> None:
    a, b = Value(1, "a"), Value(2, "b")
    code = (
        Draft(row=Instruction(op="MOV"), dst=(Operand(a),)),
        Draft(row=Instruction(op="FADD"), dst=(Operand(b),), src=(Operand(a), Operand(a))),
        Draft(row=Instruction(op="EXIT")),
    )
    live = liveness(code)
    assert [live.pressure(mask) for mask in live.after] == [1, 0, 0]


def test_value_read_in_the_next_iteration_stays_live_through_the_loop() -> None:
    a = Value(1, "a")
    code = (
        Draft(row=Instruction(op="MOV"), dst=(Operand(a),)),
        Draft(row=Instruction(op="#label"), label="L"),
        Draft(row=Instruction(op="FADD"), src=(Operand(a),)),
        Draft(row=Instruction(op="LOOP"), target="L"),
        Draft(row=Instruction(op="EXIT")),
    )
    live = liveness(code)
    assert live.pressure(live.after[2]) == 1


def test_half_of_a_group_can_die_alone() -> None:
    a = Value(1, "a", 2)
    code = (
        Draft(row=Instruction(op="MOV"), dst=(Operand(a, 0, 2),)),
        Draft(row=Instruction(op="FADD"), src=(Operand(a, 0),)),
        Draft(row=Instruction(op="FADD"), src=(Operand(a, 1),)),
        Draft(row=Instruction(op="EXIT")),
    )
    live = liveness(code)
    assert [live.pressure(mask) for mask in live.after] == [2, 1, 0, 0]


def test_spill_names_the_tile_the_line_the_count_and_the_budget() -> None:
    with pytest.raises(
        UserError, match=r"tiny.py:12: role worker spills: \d+ vector registers .*acc 32.* budget is 40"
    ):
        AllocateRegisters().run(drafts(registers=40), A100)


def test_tile_read_before_it_is_written_is_refused() -> None:
    program = tiny.ampere()
    role = program.roles[0]
    body = tuple(replace(op, body=op.body[1:]) for op in role.body)  # type: ignore[attr-defined]
    program = replace(program, roles=(replace(role, body=body),))
    selected = SelectInstructions().run(LayoutToWarps().run(program, A100), A100)
    with pytest.raises(UserError, match="register tile acc of role worker is read before it is written"):
        AllocateRegisters().run(selected, A100)


def test_three_sources_do_not_share_a_bank_where_banks_are_free() -> None:
    values = [Value(i, f"v{i}") for i in range(3)]
    makers = [Draft(row=Instruction(op="MOV"), dst=(Operand(v),)) for v in values]
    use = Draft(row=Instruction(op="FFMA"), dst=(Operand(Value(9, "d")),), src=tuple(map(Operand, values)))
    role = AllocateRegisters().run(straight(*makers, use), A100).roles[0]
    banks = [role.registers[v.id] % A100.register_banks for v in values]
    assert len(set(banks)) == 2


def test_groups_are_aligned_to_their_size() -> None:
    role = AllocateRegisters().run(drafts(), A100).roles[0]
    groups = {o.value for d in role.code for o in d.dst if o.value.count == 4}
    assert groups
    assert all(role.registers[v.id] % 4 == 0 for v in groups)


def test_allocation_of_every_generation_passes_the_verifier() -> None:
    for name, program in (("a100", tiny.ampere()), ("h100", tiny.hopper()), ("b200", tiny.blackwell())):
        gpu = machine(name)
        selected = SelectInstructions().run(LayoutToWarps().run(program, gpu), gpu)
        VerifyAllocation().run(AllocateRegisters().run(selected, gpu))


def test_verifier_notices_two_live_values_in_one_register() -> None:
    allocated = AllocateRegisters().run(drafts(), A100)
    role = allocated.roles[0]
    accumulators = [o.value.id for d in role.code for o in d.dst if d.op == "HMMA"]
    moved = {**role.registers, accumulators[0]: role.registers[accumulators[1]]}
    with pytest.raises(InternalError, match="which may hold"):
        VerifyAllocation().run(replace(allocated, roles=(replace(role, registers=moved),)))


def test_verifier_notices_a_register_beyond_the_budget() -> None:
    allocated = AllocateRegisters().run(drafts(), A100)
    role = allocated.roles[0]
    first = next(o.value.id for d in role.code for o in d.dst if o.value.file == "vector")
    with pytest.raises(InternalError, match="has registers 256"):
        VerifyAllocation().run(replace(allocated, roles=(replace(role, registers={**role.registers, first: 256}),)))
