"""Is every stall count and every wait of the control fields needed, and none missing? Legal at N, illegal at N - 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import passes_programs as tiny
from heddle.errors import InternalError, UserError
from heddle.ir.tile import RoleBody
from heddle.ir.warp import Control, Instruction
from heddle.machine import Machine, machine
from heddle.passes import PASSES
from heddle.passes.draft import Draft, DraftProgram, Operand, RoleDraft, Value
from heddle.passes.set_control import SetControl
from heddle.passes.verify_control import VerifyControl

H100 = machine("h100")
FIXED = ("FADD", "FFMA", "FMUL", "IADD3", "IMAD", "LOP3", "MOV", "F2FP", "ISETP", "R2UR", "UIADD3", "UISETP")


def controlled(name: str) -> tuple[DraftProgram, Machine]:
    """A tiny program after set_control."""
    program, gpu = {"a100": tiny.ampere, "h100": tiny.hopper, "b200": tiny.blackwell}[name](), machine(name)
    current: object = program
    for label, step in PASSES:
        current = step.run(current, gpu)
        if label == "set_control":
            break
    assert isinstance(current, DraftProgram)
    return current, gpu


def with_code(program: DraftProgram, role: int, index: int, draft: Draft) -> DraftProgram:
    code = list(program.roles[role].code)
    code[index] = draft
    roles = list(program.roles)
    roles[role] = replace(roles[role], code=tuple(code))
    return replace(program, roles=tuple(roles))


def straight(*code: Draft) -> DraftProgram:
    """One role of straight-line code; value i has register i."""
    base, _ = controlled("h100")
    values = {o.value.id for d in code for o in d.dst + d.src}
    body = RoleBody(name="r", warps=1, registers=64, body=())
    exit_row = Draft(row=Instruction(op="EXIT"))
    role = RoleDraft(body=body, first_warp=0, code=(*code, exit_row), registers={v: v for v in values})
    return replace(base, roles=(role,))


def chain(op: str, stall: int) -> DraftProgram:
    """Two operations, the second reading the first's result."""
    a, b = Value(1, "a", file="vector"), Value(2, "b")
    first = Draft(row=Instruction(op=op), dst=(Operand(a),), control=Control(stall=stall))
    return straight(first, Draft(row=Instruction(op="MOV"), dst=(Operand(b),), src=(Operand(a),)))


@pytest.mark.parametrize("op", FIXED)
def test_dependent_result_is_legal_after_its_latency_and_not_before(op: str) -> None:
    latency = H100.op_timing(op).latency_cycles
    VerifyControl().run(chain(op, latency), H100)
    with pytest.raises(InternalError, match="too early"):
        VerifyControl().run(chain(op, latency - 1), H100)


@pytest.mark.parametrize("op", FIXED)
def test_set_control_gives_a_dependent_result_exactly_its_latency(op: str) -> None:
    set_role = SetControl().run(chain(op, 1), H100).roles[0]
    assert set_role.code[0].control.stall == H100.op_timing(op).latency_cycles


def mutants(program: DraftProgram) -> Iterator[tuple[str, DraftProgram]]:
    """Each program that lacks one cycle of one stall count, or one wait."""
    for number, role in enumerate(program.roles):
        for index, draft in enumerate(role.code):
            control = draft.control
            if control.stall > 1:
                less = replace(control, stall=control.stall - 1)
                yield f"stall {index}", with_code(program, number, index, replace(draft, control=less))
            for counter in control.wait:
                less = replace(control, wait=control.wait - {counter})
                yield f"wait {index}", with_code(program, number, index, replace(draft, control=less))


@pytest.mark.parametrize("name", ["a100", "h100", "b200"])
def test_every_stall_cycle_and_every_wait_is_needed(name: str) -> None:
    program, gpu = controlled(name)
    VerifyControl().run(program, gpu)
    unneeded = []
    total = 0
    for what, mutant in mutants(program):
        total += 1
        try:
            VerifyControl().run(mutant, gpu)
            unneeded.append(what)
        except InternalError:
            pass
    assert total > 20
    assert len(unneeded) <= 0.1 * total, unneeded  # a stall added for one path of a join may be spare on the other


def test_missing_write_counter_is_noticed() -> None:
    program, gpu = controlled("a100")
    code = program.roles[0].code
    index = next(i for i, d in enumerate(code) if d.op == "LDSM")
    bare = replace(code[index], control=replace(code[index].control, write_barrier=None))
    with pytest.raises(InternalError, match="LDSM"):
        VerifyControl().run(with_code(program, 0, index, bare), gpu)


def test_overwriting_an_operand_that_is_still_read_needs_a_read_counter() -> None:
    address, data = Value(1, "address"), Value(2, "data")
    store = Draft(row=Instruction(op="STS", bytes=128), src=(Operand(address), Operand(data)))
    overwrite = Draft(row=Instruction(op="MOV"), dst=(Operand(data),))
    with pytest.raises(InternalError, match="overwrites an operand of"):
        VerifyControl().run(straight(store, overwrite), H100)
    VerifyControl().run(SetControl().run(straight(store, overwrite), H100), H100)


def test_accumulator_read_before_the_wait_is_the_users_error() -> None:
    accumulator, packed = Value(1, "acc"), Value(2, "packed")
    matrix = Draft(row=Instruction(op="HGMMA", shape=(64, 8, 16), form="ss", dtype="fp16"), dst=(Operand(accumulator),))
    read = Draft(row=Instruction(op="MOV"), dst=(Operand(packed),), src=(Operand(accumulator),))
    commit, wait = Draft(row=Instruction(op="WARPGROUP.COMMIT")), Draft(row=Instruction(op="WARPGROUP.DEPBAR"))
    VerifyControl().run(straight(matrix, commit, wait, read), H100)
    with pytest.raises(UserError, match="touches registers of a matrix instruction that is still running"):
        VerifyControl().run(straight(matrix, commit, read, wait), H100)


def test_stall_beyond_the_field_is_filled_with_nops() -> None:
    slow = replace(H100, ops={**H100.ops, "FADD": replace(H100.op_timing("FADD"), latency_cycles=40)})
    code = SetControl().run(chain("FADD", 1), slow).roles[0].code
    assert [d.control.stall for d in code if d.op in ("FADD", "NOP")] == [15, 15, 10]
    VerifyControl().run(SetControl().run(chain("FADD", 1), slow), slow)
