"""Warp scheduler policies: three built in, or a user's function.

A policy is a function (ready, last, subpartition, cycle) -> bit: `ready` is the mask of warps that could issue in this
cycle (bit i is the i-th warp context of the subpartition, in the order of contexts), `last` the bit that issued last
(-1 at first). It must return a bit that is set in `ready`. For `engine="compiled"` a function is compiled if it
uses no more of Python than the core does (`heddle.sim.native`); any other is called as it is, which is slower.
"""

from __future__ import annotations

from collections.abc import Callable

from heddle.sim.core import layout as c

Chooser = Callable[[int, int, int, int], int]
Policy = str | Chooser
POLICIES = {"gty": c.POLICY_GTY, "gto": c.POLICY_GTO, "lrr": c.POLICY_LRR}
