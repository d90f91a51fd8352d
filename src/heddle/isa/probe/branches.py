"""What branches, calls and returns read and write: each is measured in a kernel of its own.

Behind a branch that may not be taken the code goes on, so its life ranges end nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heddle.isa.form import scatter
from heddle.isa.instruction import REGISTER_KINDS, Kind
from heddle.isa.judge import texts_of
from heddle.isa.probe.liveness import Marks, marks_of
from heddle.isa.probe.opcode import NEUTRAL_CONTROL
from heddle.isa.probe.widths import counts_of, spread
from heddle.isa.table import form_of
from heddle.isa.words import from_ints

BRANCHES = frozenset({
    "BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "BSYNC", "BSSY", "BREAK", "WARPSYNC", "KILL",
    "RTT", "BPT", "LEPC", "YIELD", "PREEXIT", "RPCMOV",
})  # fmt: skip
"""Life ranges of these are not asked for in a row with others: they end the straight line of code."""
KERNEL_STEPS = 16
_GUARD = 4 << 12  # @P4: no field of `spread` has it


def set_branch_roles(rows: Iterable[dict[str, Any]], architecture: str) -> None:
    """Measure role and count of the registers of all entries that branch, in place; what nvdisasm refuses stays."""
    for row in rows:
        form = form_of(row)
        if row["name"] not in BRANCHES or not any(field.kind in REGISTER_KINDS for field in form.fields):
            continue
        word = spread(form.constant | NEUTRAL_CONTROL, form.fields) | _GUARD
        for field in form.fields:
            if field.kind == Kind.TARGET:
                word &= ~scatter(-1, field.bits)
        if texts_of(from_ints([word]), architecture) == [None]:
            continue
        marks: Marks = marks_of([word], architecture, KERNEL_STEPS)[0]
        for name, (role, count) in counts_of(word, form.fields, marks).items():
            data = row["fields"][name]
            data.pop("count", None)
            data["role"] = role or "none"
            if count > 1 and data["kind"] in ("GPR", "UNIFORM"):
                data["count"] = count
