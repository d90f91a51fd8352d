"""The steps of the ablation: machines that have some of FIBER's features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.machine.load import with_fiber
from heddle.machine.spec import Machine


@dataclass(frozen=True, slots=True)
class Step:
    """`changes`: fields of the machine with all features; `short` goes into the machine's name."""

    name: str
    short: str
    meaning: str
    changes: Mapping[str, Any]

    def machine(self, base: Machine) -> Machine:
        """Return the machine that has the features of this step."""
        whole = with_fiber(base)
        if not self.changes:
            return whole
        return whole.replace(**self.changes, name=f"{base.name.removesuffix('+fiber')}+{self.short}")


STEPS = (
    Step(
        "+DP literal",
        "dp-literal",
        "wefts own no registers; data of other wefts pass through shared memory; barriers order phases",
        {"fine_scheduling": False, "register_sharing": False},
    ),
    Step(
        "+DP",
        "dp",
        "the same, with registers shared inside a subpartition",
        {"fine_scheduling": False, "sharing_scope": "subpartition"},
    ),
    Step(
        "+DP +FS",
        "fs",
        "full and empty bits and matrix instructions of wefts, too; the paper's tight-wiring variant",
        {"sharing_scope": "subpartition"},
    ),
    Step("+DP +FS +RS", "fiber", "registers shared by the whole SM, too: all of FIBER", {}),
)
"""What `heddle compare --ablate` adds to the baseline, one step after the other."""
