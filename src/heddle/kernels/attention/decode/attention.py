"""Registry entry of decoding: `decode_attention`, one launch or two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels._kernel import Parameter
from heddle.kernels.attention.check import complete_sizes
from heddle.kernels.attention.decode.choice import CHOICES, chosen, split_number
from heddle.kernels.attention.decode.fiber_native import HEAD_DIMS
from heddle.kernels.attention.decode.kernel import (
    ARCHITECTURES,
    BATCH,
    DECODE_SPLIT,
    DECODE_SPLIT_FA4,
    DECODE_WHOLE,
    DTYPE,
    HEAD_DIM,
    HEADS_KV,
    HEADS_Q,
    KEYS,
)
from heddle.kernels.attention.decode.reference import whole
from heddle.kernels.attention.decode.shape import MOST_SPLITS, DecodeProblem
from heddle.machine.spec import Machine

DTYPE_ANY = Parameter(
    "dtype",
    str,
    "fp16",
    "type of Q, K and V; 8 bits on H100 and H200 only, with O in bf16; fp8_kv: Q is rounded to 8 bits before, because "
    "FlashAttention 3 takes one type",
    choices=("fp16", "bf16", "fp8_e4m3", "fp8_kv"),
)
APPEND = Parameter(
    "append",
    int,
    1,
    "FlashAttention 2: 1 adds a key and value, as models do, which only its split kernel can; 0: all keys are there",
    choices=(0, 1),
)
IMPLEMENTATION = Parameter(
    "implementation",
    str,
    "auto",
    "of today's launches; fa2: the code for A100, on every GPU; fa4: on B200, up to head size 128; auto: the best "
    "known: on H100 FlashAttention 3, on B200 fa2 where keys are few for each SM, else fa4",
    choices=CHOICES,
)
DTYPES_OF_O = {"fp8_e4m3": "bf16"}
"""Type of O where it is not that of Q."""


class DecodeAttention(Composite):
    """Attention of one query a sequence: one launch where tiles fill the chip, else the splits and their sum."""

    name = "decode_attention"
    summary = "attention of one query a sequence: FlashDecoding (keys split over SMs), query heads packed"
    parameters = (
        BATCH,
        HEADS_Q,
        HEADS_KV,
        Parameter("seqlen_q", int, 1, "queries of a sequence", choices=(1,)),
        KEYS,
        HEAD_DIM,
        DTYPE_ANY,
        Parameter("num_splits", int, 0, "parts of the keys; 0: as the open kernel does", least=0, most=MOST_SPLITS),
        Parameter("release", int, 0, "1: the count of splits before April 2024, 0: the present one", choices=(0, 1)),
        APPEND,
        IMPLEMENTATION,
        Parameter("direction", str, "fwd", "forward", choices=("fwd",)),
    )
    architectures = ARCHITECTURES

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        return complete_sizes(super().check(params))

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches."""
        split, whole_kernel = chosen(machine, params)
        both = {"batch": params["batch"], "head_dim": params["head_dim"], "dtype": _element(params, machine)}
        native = mode == "fiber" and _has_native(both)
        split = DECODE_SPLIT if native else split
        heads = {"heads_q": params["heads_q"], "heads_kv": params["heads_kv"], "seqlen_kv": params["seqlen_kv"]}
        splits = split_number(split, {**both, **heads, "num_splits": 1}, params, machine, native)
        if splits == 1 and not native:
            packed = {**heads, "heads_q": params["heads_kv"], "seqlen_q": params["heads_q"] // params["heads_kv"]}
            if split is DECODE_SPLIT_FA4 or (params["append"] and split is DECODE_SPLIT):
                name = DECODE_WHOLE.name if split is DECODE_SPLIT else whole_kernel
                return (Step("attention", name, {**both, **heads}),)
            return (Step("attention", whole_kernel, {**both, **packed}),)
        fed = {name: f"split.{name}" for name in ("O_partial", "LSE_partial")}
        combined = {**both, "dtype": DTYPES_OF_O.get(both["dtype"], both["dtype"]), "heads_q": params["heads_q"]}
        return (
            Step("split", split.name, {**both, **heads, "num_splits": splits}),
            Step("combine", "decode_combine", {**combined, "num_splits": splits}, feeds=fed, l2_state="warm"),
        )

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded Q, K, V, and O of them."""
        names = ("batch", "heads_q", "heads_kv", "seqlen_kv", "head_dim")
        sizes = {name: params[name] for name in names}
        inputs, expected = whole(DecodeProblem(**sizes, dtype=_element(params, machine), num_splits=1), seed)
        return inputs, {f"{self.steps(machine, params, mode)[-1].name}.O": expected["O"]}


def _element(params: Mapping[str, Any], machine: Machine) -> str:
    """Return the type of Q, K and V in memory; raises UserError where no kernel of the machine takes it."""
    dtype = "fp8_e4m3" if params["dtype"] == "fp8_kv" else str(params["dtype"])
    split, _ = chosen(machine, params)
    allowed = next(parameter.choices for parameter in split.parameters if parameter.name == "dtype")
    if dtype not in allowed:
        raise UserError(
            f"decoding on {machine.name} takes {', '.join(map(str, allowed))}; got {params['dtype']!r}",
            hint="8 bits are decoded by FlashAttention 3, on h100 and h200",
        )
    return dtype


def _has_native(sizes: Mapping[str, Any]) -> bool:
    """Whether the FIBER-native kernel takes these types and head sizes; others run the steps of today."""
    return sizes["head_dim"] in HEAD_DIMS and sizes["dtype"] in DTYPE.choices


DECODE_ATTENTION = DecodeAttention()
