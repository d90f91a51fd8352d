"""Named NumPy views of the engine's flat state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.sim.core import layout as c
from heddle.sim.state import Extent

Array = NDArray[np.int64]

WARP_FIELDS = {
    "row": c.W_ROW,
    "state": c.W_STATE,
    "next_ok": c.W_NEXT_OK,
    "reason": c.W_REASON,
    "item": c.W_ITEM_INDEX,
    "role": c.W_ROLE,
    "slot": c.W_SLOT,
    "warp": c.W_WARP,
}


class View:
    """Arrays over the warp contexts, in the order of `SimResult.stalls`.

    Scalars a warp (copies): `row`, `state`, `next_ok`, `reason`, `item`, `role`, `slot`, `warp`, `pc`. Lists of live
    views into the state, one a warp: `counters` (loops), `at_rest` (dependence counters), `stage`, `parity` (rings).
    `mbarriers` is [CTA, element, (arrived, bytes, parity, count)].
    """

    def __init__(self, state: Array, extent: Extent) -> None:
        self._state, self._extent = state, extent
        self._warps = np.array([extent.warp(*context) for context in extent.contexts()], dtype=np.int64)

    def __getattr__(self, name: str) -> Array:
        if name not in WARP_FIELDS:
            raise AttributeError(
                f"no view {name!r}; there are {', '.join(sorted(WARP_FIELDS))} and the documented ones"
            )
        values: Array = self._state[self._warps + WARP_FIELDS[name]]
        return values

    @property
    def pc(self) -> Array:
        """Program counter of the instruction that each warp waits to issue."""
        return self._state[self._warps + c.W_ROW] // c.P_WORDS

    def _lists(self, offset: int, length: int) -> list[Array]:
        return [self._state[at + offset : at + offset + length] for at in self._warps]

    @property
    def counters(self) -> list[Array]:
        """Loop counters of each warp."""
        return self._lists(c.W_COUNTER, c.LEVELS)

    @property
    def at_rest(self) -> list[Array]:
        """Cycle from which each dependence counter of each warp is at rest."""
        return self._lists(c.W_AT_REST, c.COUNTERS)

    @property
    def stage(self) -> list[Array]:
        """Ring stages of each warp."""
        return self._lists(c.W_STAGE, c.RINGS)

    @property
    def parity(self) -> list[Array]:
        """Ring phases of each warp."""
        return self._lists(c.W_PARITY, c.RINGS)

    @property
    def mbarriers(self) -> Array:
        """Arrivals, expected bytes, parity and count of every mbarrier of every CTA."""
        extent = self._extent
        ctas = extent.sms * extent.slots
        first = extent.base["mbarriers"]
        table = self._state[first : first + ctas * extent.mbarriers * c.B_WORDS]
        return table.reshape(ctas, extent.mbarriers, c.B_WORDS)[:, :, : c.B_COUNT + 1]
