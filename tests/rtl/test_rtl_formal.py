"""Are the promises of the units proven, and is every deliberate fault caught?"""

import pytest

from heddle.cost.formal import PROOFS, TOOLS, Fault, prove
from heddle.cost.tools import missing
from heddle.cost.verilog import FOLDER

FAULTS = [(name, fault) for name, proof in PROOFS.items() for fault in proof.faults]
needs_provers = pytest.mark.skipif(bool(missing(TOOLS)), reason=f"needs {', '.join(missing(TOOLS))}")


@pytest.mark.slow
@needs_provers
@pytest.mark.parametrize("name", PROOFS)
def test_promises_are_proven(name: str) -> None:
    assert prove(PROOFS[name])


@pytest.mark.slow
@needs_provers
@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=lambda value: value if isinstance(value, str) else value.module)
def test_a_fault_is_caught(name: str, fault: Fault) -> None:
    assert not prove(PROOFS[name], fault)


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=lambda value: value if isinstance(value, str) else value.module)
def test_a_fault_is_about_text_that_is_there(name: str, fault: Fault) -> None:
    assert fault.right in (FOLDER / f"{fault.module}.v").read_text("utf-8")
