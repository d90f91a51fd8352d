"""The launches that a backward pass of attention is made of, by generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heddle.kernels._kernel import Kernel
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.kernels.attention.backward.rows_kernel import (
    CLEAR_KEYS,
    CONVERT,
    CONVERT_KEYS,
    GROUP_SUM,
    PREPROCESS,
    PREPROCESS_FA3,
)
from heddle.machine.spec import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardStep:
    """A launch of a backward pass: a kernel, with those of attention's parameters that it has.

    `feeds`: where its input tensors come from, as of `Step`; the backward pass has the inputs Q, K, V, O, dO and LSE
    (the natural logarithm of each row's sum). `gradients`: which of its output tensors are dQ, dK or dV.
    """

    name: str
    kernel: Kernel[Any]
    feeds: Mapping[str, str] = field(default_factory=dict)
    gradients: Mapping[str, str] = field(default_factory=dict)


def fa2_launches(params: Mapping[str, Any]) -> tuple[BackwardStep, ...]:
    """Return those of FlashAttention 2: with grouped queries dK and dV of a group's heads are added at the end."""
    of_heads = {"dK_heads": "main.dK_heads", "dV_heads": "main.dV_heads"}
    grouped = params["heads_q"] != params["heads_kv"]
    steps = [
        BackwardStep(name="preprocess", kernel=PREPROCESS),
        BackwardStep(
            name="main",
            kernel=ATTENTION_BWD,
            feeds={"delta": "preprocess.delta"},
            gradients={} if grouped else {"dK_heads": "dK", "dV_heads": "dV"},
        ),
        BackwardStep(name="convert", kernel=CONVERT, feeds={"dQ_accum": "main.dQ_accum"}, gradients={"dQ": "dQ"}),
    ]
    if grouped:
        gradients = {"dK": "dK", "dV": "dV"}
        steps.append(BackwardStep(name="group_sum", kernel=GROUP_SUM, feeds=of_heads, gradients=gradients))
    return tuple(steps)


def fa3_launches(params: Mapping[str, Any]) -> tuple[BackwardStep, ...]:
    """Return those of FlashAttention 3: with grouped queries dK and dV are added up in fp32 and rounded at the end."""
    grouped = params["heads_q"] != params["heads_kv"]
    steps = [
        BackwardStep(name="preprocess", kernel=PREPROCESS_FA3),
        BackwardStep(
            name="main",
            kernel=ATTENTION_BWD,
            feeds={name: f"preprocess.{name}" for name in ("LSE_log2", "dPsum")},
            gradients={} if grouped else {"dK": "dK", "dV": "dV"},
        ),
        BackwardStep(name="convert", kernel=CONVERT, feeds={"dQ_accum": "main.dQ_accum"}, gradients={"dQ": "dQ"}),
    ]
    if grouped:
        feeds = {name: f"main.{name}" for name in ("dK_accum", "dV_accum")}
        gradients = {"dK": "dK", "dV": "dV"}
        steps.insert(1, BackwardStep(name="clear_keys", kernel=CLEAR_KEYS))
        steps.append(BackwardStep(name="convert_keys", kernel=CONVERT_KEYS, feeds=feeds, gradients=gradients))
    return tuple(steps)


def native80_launches(params: Mapping[str, Any]) -> tuple[BackwardStep, ...]:
    """Return those of the FIBER-native kernel of A100: statistics to base 2, row by row, as FlashAttention 3 has them.

    dK and dV of the heads of a group are added at the end, as by FlashAttention 2.
    """
    preprocess, main, *after = fa2_launches(params)
    feeds = {name: f"preprocess.{name}" for name in ("LSE_log2", "dPsum")}
    return (replace(preprocess, kernel=PREPROCESS_FA3), replace(main, feeds=feeds), *after)


LAUNCHES: dict[str, Callable[[Mapping[str, Any]], tuple[BackwardStep, ...]]] = {
    "sm_80": fa2_launches,
    "sm_90": fa3_launches,
    "sm_100": fa3_launches,
}
"""The launches of the backward pass for attention's checked parameters, by architecture; one not listed has none."""
IN_FIBER: dict[str, Callable[[Mapping[str, Any]], tuple[BackwardStep, ...]]] = {"sm_80": native80_launches}
"""Those of FIBER-native main kernels with full and empty bits, where they are others: what these read and write."""
FORWARD_WITH_LSE = {"sm_80": "attention_lse"}
"""The forward kernel that writes LSE for the backward pass; without one LSE is an input of both passes."""


def backward_launches(machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[BackwardStep, ...]:
    """Return the launches for attention's checked parameters in a mode, of an architecture that `LAUNCHES` lists."""
    by_bits = mode == "fiber" and machine.fine_scheduling
    found = IN_FIBER.get(machine.architecture) if by_bits else None
    return (found or LAUNCHES[machine.architecture])(params)
