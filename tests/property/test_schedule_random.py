"""Does any program mean the same after scheduling: every read the same write, every effect the same numbers?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import passes_programs as tiny
import schedule_programs as small
from heddle.ir import tile as t
from heddle.passes.allocate_registers import AllocateRegisters
from heddle.passes.draft import Draft, Operand, Value, whole
from heddle.passes.schedule import Schedule
from heddle.passes.schedule.dependences import is_ordered
from heddle.passes.schedule.regions import is_boundary
from heddle.passes.set_control import SetControl
from heddle.passes.verify_allocation import VerifyAllocation
from heddle.passes.verify_control import VerifyControl

WAIT = "WARPGROUP.DEPBAR"
VALUES = [Value(1, "big", 4), *(Value(i, f"v{i}") for i in range(2, 8))]
OPS = {
    "FADD": (1, 2), "FFMA": (1, 3), "MUFU": (1, 1), "MOV": (1, 0), "LDS": (1, 1), "STS": (0, 2), "SHFL": (1, 1),
    "BAR.SYNC": (0, 0), "HGMMA": (4, 0), "WARPGROUP.COMMIT": (0, 0), WAIT: (0, 0),
}  # fmt: skip
"""Registers that each opcode writes (4: the whole of `big`) and reads."""
PLACES = [Operand(v, i) for v in VALUES for i in range(v.count)]


@st.composite
def drafts(draw: st.DrawFn) -> list[Draft]:
    """Code that is right for the matrix unit: what it owns is not touched before the wait, but after it."""
    code: list[Draft] = []
    under_way = False
    for number, op in enumerate([*draw(st.lists(st.sampled_from(sorted(OPS)), min_size=3, max_size=40)), WAIT]):
        written, read = OPS[op]
        free = PLACES[4:] if under_way else PLACES
        places = st.sampled_from(free)
        row: dict[str, object] = {"barrier_id": number}  # a name for the instruction: nothing reads it
        dst = [draw(places)] if written == 1 else []
        if op == "HGMMA":
            dst, row = [whole(VALUES[0])], {**row, "shape": (64, 8, 16), "dtype": "fp16", "form": "ss"}
            under_way = True
        if op in ("LDS", "STS"):
            row["bytes"] = 128
        code.append(small.draft(op, dst, [draw(places) for _ in range(read)], **row))
        if op == "HGMMA":  # it accumulates: nothing else may get its registers meanwhile
            code[-1] = replace(code[-1], accumulates=True)
        if op == WAIT:
            code.insert(-1, small.draft("WARPGROUP.COMMIT", barrier_id=1000 + number))
            code.append(small.draft("STS", [], [PLACES[4], whole(VALUES[0])], bytes=512, barrier_id=2000 + number))
            under_way = False
    return code


def sources_of_reads(code: Sequence[Draft]) -> dict[tuple[int, tuple[int, int]], int]:
    """(instruction, register) -> the instruction whose result it reads, or -1 for what was there before."""
    writer: dict[tuple[int, int], int] = {}
    found = {}
    for d in code:
        name = d.row.barrier_id
        for operand in d.reads():
            found.update({(name, element): writer.get(element, -1) for element in operand.elements()})
        writer.update({element: name for operand in d.dst for element in operand.elements()})
    return {**found, **{(-1, element): name for element, name in writer.items()}}


@settings(max_examples=150, deadline=None)
@given(code=drafts(), budget=st.sampled_from([12, 16, 64]))
def test_every_read_finds_the_same_write(code: list[Draft], budget: int) -> None:
    after = small.scheduled(*code, budget=budget)
    assert sources_of_reads(after) == sources_of_reads(code)


@settings(max_examples=60, deadline=None)
@given(code=drafts())
def test_memory_matrix_and_barrier_instructions_keep_their_order(code: list[Draft]) -> None:
    def kept(some: Sequence[Draft]) -> list[int]:
        return [d.row.barrier_id for d in some if is_boundary(d) or is_ordered(d)]

    assert kept(small.scheduled(*code)) == kept(code)


@settings(max_examples=60, deadline=None)
@given(code=drafts())
def test_scheduled_code_is_accepted_by_both_verifiers(code: list[Draft]) -> None:
    program = Schedule(least_gain=0.0).run(small.straight(*code), small.H100)
    for step in (AllocateRegisters(), VerifyAllocation(), SetControl(), VerifyControl()):
        program = step.run(program, small.H100)


def column(function: str) -> st.SearchStrategy[t.Op]:
    """An operation on the columns `a` and `b`."""
    names = st.sampled_from(["a", "b"])
    return st.builds(
        lambda dst, one, two: t.Elementwise(function=function, dst=dst, sources=(one, two), where=tiny.at(20)),
        names, names, names,
    )  # fmt: skip


OPERATIONS = st.one_of(
    st.builds(
        lambda f, dst, acc: t.RowReduce(function=f, dst=dst, src="x", accumulate=acc, where=tiny.at(21)),
        st.sampled_from(["max", "sum"]), st.sampled_from(["a", "b"]), st.booleans(),
    ),
    st.builds(
        lambda f, c: t.Elementwise(function=f, dst="x", sources=("x", c), where=tiny.at(22)),
        st.sampled_from(["sub", "max"]), st.sampled_from(["a", "b"]),
    ),
    st.just(t.Elementwise(function="exp2_scaled_sub", dst="x", sources=("x", "a"), scalars=(0.1,), where=tiny.at(23))),
    st.just(t.Elementwise(function="cast", dst="half", sources=("x",), where=tiny.at(24))),
    st.just(t.Elementwise(function="cast", dst="x", sources=("half",), where=tiny.at(25))),
    st.just(t.Mask(dst="x", row=t.Position(), col=t.Position(), causal=True, value=-2.0, where=tiny.at(26))),
    column("add"),
    column("max"),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(body=st.lists(OPERATIONS, min_size=1, max_size=8), cols=st.sampled_from([8, 16, 40]), seed=st.integers(0, 99))
def test_programs_compute_the_same_numbers_without_hazards(body: list[t.Op], cols: int, seed: int) -> None:
    first = t.Elementwise(function="cast", dst="half", sources=("x",), where=tiny.at(9))
    program = small.arithmetic(cols, first, *body, columns=("a", "b"))
    inputs = small.numbers(cols, seed)
    before, hazards_before, _ = small.result_of(small.compiled(program, enabled=False), inputs)
    after, hazards_after, _ = small.result_of(small.compiled(program, enabled=True), inputs)
    assert np.array_equal(before["Y"], after["Y"], equal_nan=True)
    assert (hazards_before, hazards_after) == (0, 0)
