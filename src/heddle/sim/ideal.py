"""What may be idealised in a simulation: the paper's oracles, and the engine's two switches.

An oracle answers "what if the hardware did this for nothing": it drops a kind of dependence and keeps the others
(docs/reference/engine.md, section 9). `dp` and the switch `order` are the same rule under the two names that the
studies use.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from heddle.errors import UserError, unknown_name

ORACLES = {
    "dp": "a warp issues out of order between barriers; what it reads and the order of memory are kept",
    "fs": "matrix instructions of single warps, waits on single tiles in place of warp-group waits and turns",
    "rs": "operands of matrix instructions pass through shared registers and take nothing of shared memory",
}
SWITCHES = {
    "order": "a warp issues any instruction whose operands are there, up to the next barrier or branch",
    "barriers": "nobody waits at a barrier; a matrix instruction still waits for the tiles that it reads",
    "data": "with barriers: nor does it wait for those",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideal:
    """What is idealised. All off is the machine as it is."""

    free_order: bool = False  # dp, order off
    no_barriers: bool = False  # barriers off
    no_tiles: bool = False  # data off, too
    warp_products: bool = False  # fs
    shared_operands: bool = False  # rs

    @property
    def steps(self) -> bool:
        """Tell whether issue follows other rules than the machine's (`core.ideal_step`)."""
        return self.free_order or self.no_barriers or self.warp_products

    @property
    def waits_for_tiles(self) -> bool:
        """Tell whether matrix instructions wait for their tiles in place of what is off."""
        return (self.no_barriers or self.warp_products) and not self.no_tiles

    def __bool__(self) -> bool:
        return self.steps or self.shared_operands


AS_IT_IS = Ideal()


def ideal(oracle: Collection[str] = (), off: Collection[str] = ()) -> Ideal:
    """Return what oracles or switches ask for. Raises UserError for unknown names, or both kinds at once."""
    for kind, given, allowed in (("oracle", oracle, ORACLES), ("switch", off, SWITCHES)):
        for name in given:
            if name not in allowed:
                raise unknown_name(kind, name, allowed)
    if oracle and off:
        raise UserError(
            f"oracles ({', '.join(oracle)}) and switches ({', '.join(off)}) are two studies; ask for one of them",
            hint="the oracle dp is the rule that `order` switches to",
        )
    if "data" in off and "barriers" not in off:
        raise UserError(
            "data cannot be off while barriers are on: they are what waits for it", hint="--off barriers,data"
        )
    return Ideal(
        free_order="dp" in oracle or "order" in off,
        no_barriers="barriers" in off,
        no_tiles="data" in off,
        warp_products="fs" in oracle,
        shared_operands="rs" in oracle,
    )


def ordered_names(names: Collection[str]) -> tuple[str, ...]:
    """Return the names once each, in the order of the tables above: one question has one wording."""
    return tuple(name for name in (*ORACLES, *SWITCHES) if name in names)
