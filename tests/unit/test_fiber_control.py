"""Does a weft wait until shared memory has been read before it says so, and is a missing wait found?"""

from __future__ import annotations

import dataclasses

import pytest

from fiber_kernels import one_sm, tiles
from heddle.errors import InternalError
from heddle.ir.warp import Control
from heddle.passes.draft import Draft, DraftProgram
from heddle.passes.manager import FIBER_PASSES
from heddle.passes.verify_control import VerifyControl


def controlled() -> DraftProgram:
    """Return the small GEMM with its control fields."""
    current: object = tiles()
    for name, step in FIBER_PASSES:
        current = step.run(current, one_sm())
        if name == "set_control":
            assert isinstance(current, DraftProgram)
            return current
    raise AssertionError("no control fields")


def hasty(draft: Draft) -> Draft:
    """Return an arrival that waits for nothing; other instructions as they are."""
    if draft.op != "SYNCS.ARRIVE":
        return draft
    return dataclasses.replace(draft, control=Control(stall=draft.control.stall))


@pytest.mark.parametrize("role", ["multiply_0", "fragments"])
def test_an_arrival_without_its_wait_is_found(role: str) -> None:
    program = controlled()
    roles = tuple(
        dataclasses.replace(r, code=tuple(map(hasty, r.code))) if r.body.name == role else r for r in program.roles
    )
    with pytest.raises(InternalError, match=role):
        VerifyControl().run(dataclasses.replace(program, roles=roles), one_sm())


def test_an_arrival_waits_for_the_operands_of_products_and_not_for_their_results() -> None:
    role = next(r for r in controlled().roles if r.body.name == "multiply_0")
    waited = {counter for draft in role.code if draft.op == "SYNCS.ARRIVE" for counter in draft.control.wait}
    products = [draft.control for draft in role.code if draft.op == "WMMA"]
    assert waited <= {control.read_barrier for control in products}
    assert not waited & {control.write_barrier for control in products}
