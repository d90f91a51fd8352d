"""Does every tile program survive printing and parsing, whatever its fields hold?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heddle.errors import SourceLocation
from heddle.ir import tile, warp
from heddle.ir.tile_printer import OPERATIONS
from heddle.ir.tile_text import parse_program, print_program
from records import Records

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,5}", fullmatch=True) | st.sampled_from(
    ["R1", "RZ", "inf", "true", "false", "first_iteration", "a b", "x//y", 'quo"te', "back\\slash", "{", "}", "Ü"]
)
INTEGERS = st.integers(-(2**40), 2**40)
FLOATS = st.floats(allow_nan=False)
PLACES = st.builds(SourceLocation, NAMES, st.integers(1, 9999), st.integers(0, 99))
# Any operation with a body: one that is added to the language is nested here too, not filled with the abstract Op.
NESTING = [kind for kind in OPERATIONS if any(field.name == "body" for field in dataclasses.fields(kind))]
LEAVES = [kind for kind in OPERATIONS if kind not in NESTING]
SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    int: INTEGERS,
    str: NAMES,
    bool: st.booleans(),
    float: FLOATS,
    SourceLocation: PLACES,
}
PARAMS = st.dictionaries(NAMES, INTEGERS | NAMES | FLOATS, max_size=3)
builds = Records(SPECIAL, mappings=PARAMS).builds


def bodies(op: st.SearchStrategy[tile.Op]) -> st.SearchStrategy[tuple[tile.Op, ...]]:
    """Bodies of operations."""
    return st.lists(op, max_size=3).map(tuple)


def nested(op: st.SearchStrategy[tile.Op]) -> st.SearchStrategy[tile.Op]:
    """Loops, conditions and parts for some fibers, around operations."""
    return st.one_of(*[builds(kind, body=bodies(op)) for kind in NESTING])


OPS = st.recursive(st.one_of(*map(builds, LEAVES)), nested, max_leaves=6)


@st.composite
def works(draw: st.DrawFn) -> warp.Work:
    """Tables of work items, small ones and one that is printed packed."""
    attributes = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    rows = draw(st.integers(0, 3) | st.just(4097))
    items = np.arange(rows * len(attributes), dtype=np.int64).reshape(rows, len(attributes)) - draw(INTEGERS)
    return warp.Work(
        attributes=tuple(attributes), items=items, schedule=draw(st.sampled_from(["static", "launch"])), grid=1
    )


PROGRAMS = builds(
    tile.TileProgram,
    roles=st.lists(builds(tile.RoleBody, body=bodies(OPS)), max_size=2).map(tuple),
    work=works(),
    params=PARAMS,
)


@given(PROGRAMS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_parse_inverts_print(program: tile.TileProgram) -> None:
    text = print_program(program)
    again = parse_program(text)
    assert np.array_equal(again.work.items, program.work.items)
    same = dataclasses.replace(again, work=program.work)
    assert same == program
    assert print_program(same) == text
