"""Does every warp program survive printing and parsing, whatever its fields hold?"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heddle.ir import warp
from heddle.ir.opcodes import OPCODES
from heddle.ir.warp_fiber import OWN, TENSOR
from heddle.ir.warp_text import parse_program, print_program
from records import Records

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,5}", fullmatch=True) | st.sampled_from(
    ["R1", "RZ", "inf", "nan", "a b", "x//y", 'quo"te', "back\\slash", "", "-", "m1n2k3", "Ü", "true"]
)
INTEGERS = st.integers(-(2**40), 2**40)
LITERALS = INTEGERS | NAMES | st.floats(allow_nan=False)


SPECIAL: dict[Any, st.SearchStrategy[Any]] = {int: INTEGERS, str: NAMES, bool: st.booleans()}
RECORDS = Records(SPECIAL, mappings=st.dictionaries(NAMES, LITERALS, max_size=3))
builds, strategy_of = RECORDS.builds, RECORDS.of
PLACES = st.none() | st.sampled_from([OWN, TENSOR]) | st.integers(0, 9)
SPECIAL[warp.Register] = st.builds(warp.Register, st.integers(0, 511), st.integers(1, 128), st.booleans(), PLACES)
COUNTERS = st.integers(0, warp.SCOREBOARDS - 1)
SPECIAL[warp.Control] = builds(
    warp.Control,
    stall=st.integers(0, 99),
    wait=st.frozensets(COUNTERS),
    write_barrier=st.none() | COUNTERS,
    read_barrier=st.none() | COUNTERS,
)
SIZES = st.integers(0, 4096)
SPECIAL[warp.Instruction] = builds(
    warp.Instruction,
    op=st.sampled_from(sorted(OPCODES)),
    shape=st.none() | st.tuples(SIZES, SIZES, SIZES),
    target=st.none() | st.integers(0, 6),
    source=st.integers(0, 6),
)


@st.composite
def works(draw: st.DrawFn) -> warp.Work:
    """Work tables of all shapes, empty ones too."""
    attributes = draw(st.lists(NAMES, max_size=3).map(tuple))
    rows = draw(st.lists(st.lists(INTEGERS, min_size=len(attributes), max_size=len(attributes)), max_size=4))
    items = np.array(rows, dtype=np.int64).reshape(len(rows), len(attributes))
    schedule = draw(st.sampled_from(["static", "launch", "dynamic"]))
    return warp.Work(attributes=attributes, items=items, schedule=schedule, grid=draw(INTEGERS))


SPECIAL[warp.Work] = works()
PROGRAMS = builds(warp.WarpProgram)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_parsing_inverts_printing(program: warp.WarpProgram) -> None:
    text = print_program(program)
    again = parse_program(text)
    assert again == program
    assert print_program(again) == text
