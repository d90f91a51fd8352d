"""The part of the engine's state that idealised simulations add: a record a warp (`core.layout_ideal`, O_)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from heddle.sim.buffers import zeros
from heddle.sim.core import layout as c
from heddle.sim.core import layout_ideal as d
from heddle.sim.ideal import Ideal
from heddle.sim.state import Extent


def add_ideal(state: NDArray[np.int64], extent: Extent, ideal: Ideal, tables: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the state with the records appended and the header filled; `tables` as `prepare_ideal` returns them."""
    size = d.O_TABLES + d.TABLES * tables["room"]
    contexts = extent.contexts()
    base = extent.place("ideal", len(contexts) * size)
    spans = extent.place("spans", extent.sms * c.SUBPARTITIONS * c.S_QUARTERS)
    larger = zeros(extent.words)
    larger[: len(state)] = state
    larger[d.H_IDEAL] = (
        d.IDEAL_ORDER * ideal.free_order | d.IDEAL_BARRIERS * ideal.no_barriers | d.IDEAL_PRODUCTS * ideal.warp_products
    )
    larger[d.H_PHASES] = -1 if ideal.no_barriers else 1
    larger[d.H_I_PCS], larger[d.H_I_ROOM] = tables["pcs"], tables["room"]
    larger[d.H_I_CONTEXTS] = extent.bits
    for number, context in enumerate(contexts):
        larger[extent.warp(*context) + d.W_IDEAL] = base + number * size
    for number in range(extent.sms * c.SUBPARTITIONS):
        sub = extent.sub(*divmod(number, c.SUBPARTITIONS))
        larger[sub + d.Q_MATRIX_SPANS] = spans + number * c.S_QUARTERS
    return larger
