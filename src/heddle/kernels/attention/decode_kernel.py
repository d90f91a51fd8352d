"""Registry entries of decoding: the two launches, and `decode_attention`, which is their sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels._limits import check_item_count
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.check import HEAD_DIMS, check_sizes
from heddle.kernels.attention.decode_combine import decode_combine, rows_per_cta
from heddle.kernels.attention.decode_reference import combination, parts, whole
from heddle.kernels.attention.decode_shape import (
    MOST_SPLITS,
    SPLIT_KEYS,
    SPLIT_ROWS,
    DecodeProblem,
    split_count,
    used_splits,
)
from heddle.kernels.attention.decode_split import decode_split, split_items
from heddle.kernels.attention.shape import AttentionConfig
from heddle.kernels.attention.sm80_fa2_config import WARP_ROWS
from heddle.machine.spec import Machine

BATCH = Parameter("batch", int, 16, "sequences", small=2)
HEADS_Q = Parameter("heads_q", int, 32, "query heads", small=4)
HEADS_KV = Parameter("heads_kv", int, 0, "key and value heads, a divisor of heads_q; 0: as many", least=0, small=2)
KEYS = Parameter("seqlen_kv", int, 8192, "keys of a sequence")
HEAD_DIM = Parameter("head_dim", int, 128, "elements of a head; pad others to the next", choices=HEAD_DIMS)
DTYPE = Parameter("dtype", str, "fp16", "type of Q, K, V and O", choices=("fp16", "bf16"))
SPLITS = Parameter("num_splits", int, 4, "parts of the keys", least=1)
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""The code is that for A100 everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineConfig:
    """A CTA takes `rows` rows."""

    rows: int

    def label(self) -> str:
        """Return a short name, as in `4 rows`."""
        return f"{self.rows} rows"


class DecodePart(Kernel[Any]):
    """One launch of decoding."""

    architectures = ARCHITECTURES
    native: Mapping[str, Any] = {}
    tile: tuple[TileParameter, ...] = ()
    arrays: Callable[[DecodeProblem, int], tuple[Arrays, dict[str, NDArray[np.float64]]]]

    def problem(self, params: Mapping[str, Any]) -> DecodeProblem:
        """Return the checked problem."""
        sizes = {"heads_kv": 0, "seqlen_kv": 1, **self.check(params)}
        sizes["heads_kv"] = sizes["heads_kv"] or sizes["heads_q"]
        check_sizes(sizes)
        return DecodeProblem(**sizes)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected outputs in float64."""
        return type(self).arrays(self.problem(params), seed)


class DecodeSplit(DecodePart):
    """Partial O and logarithms of the sums of every split."""

    name = "decode_split"
    summary = "attention of one query a sequence over each of num_splits parts of its keys (FlashAttention 2)"
    parameters = (BATCH, HEADS_Q, HEADS_KV, KEYS, HEAD_DIM, DTYPE, SPLITS)
    arrays = staticmethod(parts)

    def problem(self, params: Mapping[str, Any]) -> DecodeProblem:
        """Return the checked problem."""
        problem = super().problem(params)
        if problem.group > SPLIT_ROWS:
            raise UserError(f"{problem.group} query heads share keys; a tile has {SPLIT_ROWS} rows")
        used = used_splits(problem.seqlen_kv, problem.head_dim, problem.num_splits)
        if problem.num_splits != used:
            raise UserError(
                f"num_splits = {problem.num_splits} leaves splits of {problem.blocks} blocks of keys empty",
                hint=f"num_splits={used} cuts them in the same way",
            )
        return problem

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[AttentionConfig]:
        """Return the one configuration of the open kernel."""
        keys = SPLIT_KEYS[self.problem(params).head_dim]
        groups = SPLIT_ROWS // WARP_ROWS
        return [
            AttentionConfig(schedule="fa2", tile_m=SPLIT_ROWS, tile_n=keys, stages=1, groups=groups, order="launch")
        ]

    def simt_build(
        self, machine: Machine, params: Mapping[str, Any], config: AttentionConfig | None = None
    ) -> TileProgram:
        """Return the tile program."""
        problem = self.problem(params)
        config = config or self.simt_candidates(machine, params)[0]
        check_item_count(f"decode_split cuts {problem.planes} heads", problem.planes * problem.num_splits)
        params = {**self.check(params), "config": config.label()}
        return decode_split.build("sm_80", problem, config, split_items(problem), params=params)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 4 B Hq Skv d."""
        return self.problem(params).packed.flops


class DecodeCombine(DecodePart):
    """O of all splits."""

    name = "decode_combine"
    summary = "O of one query a sequence from the partial sums of num_splits parts of its keys"
    parameters = (BATCH, HEADS_Q, HEAD_DIM, DTYPE, SPLITS)
    arrays = staticmethod(combination)

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[CombineConfig]:
        """Return the rows of a CTA."""
        return [CombineConfig(rows=rows_per_cta(self.problem(params).head_dim))]

    def simt_build(
        self, machine: Machine, params: Mapping[str, Any], config: CombineConfig | None = None
    ) -> TileProgram:
        """Return the tile program."""
        problem = self.problem(params)
        config = config or self.simt_candidates(machine, params)[0]
        items = {"row": [*range(0, problem.rows, config.rows)]}
        check_item_count(f"decode_combine cuts {problem.rows} rows", len(items["row"]))
        params = {**self.check(params), "config": config.label()}
        return decode_combine.build("sm_80", problem, items, params=params)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return two operations an element of each part."""
        problem = self.problem(params)
        return 2 * problem.rows * problem.head_dim * problem.num_splits


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
        DTYPE,
        Parameter("num_splits", int, 0, f"parts of the keys, up to {MOST_SPLITS}; 0: as the open kernel does", least=0),
        Parameter("release", int, 0, "1: the count of splits before April 2024, 0: the present one", choices=(0, 1)),
        Parameter("direction", str, "fwd", "forward", choices=("fwd",)),
    )
    architectures = ARCHITECTURES

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        found = super().check(params)
        found["heads_kv"] = found["heads_kv"] or found["heads_q"]
        check_sizes(found)
        if found["num_splits"] > MOST_SPLITS:
            raise UserError(f"num_splits must be {MOST_SPLITS} at most, got {found['num_splits']}")
        return found

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches."""
        planes, where = params["batch"] * params["heads_kv"], (params["seqlen_kv"], params["head_dim"])
        asked = params["num_splits"] or split_count(planes, machine.sms, *where, params["release"])
        splits = used_splits(*where, asked)
        both = {name: params[name] for name in ("batch", "head_dim", "dtype")}
        if splits == 1:
            packed = {"heads_q": params["heads_kv"], "heads_kv": params["heads_kv"], "seqlen_kv": params["seqlen_kv"]}
            queries = params["heads_q"] // params["heads_kv"]
            return (Step("attention", "attention_fa2", {**both, **packed, "seqlen_q": queries}),)
        heads = {"heads_q": params["heads_q"], "num_splits": splits}
        split = {**both, **heads, "heads_kv": params["heads_kv"], "seqlen_kv": params["seqlen_kv"]}
        fed = {name: f"split.{name}" for name in ("O_partial", "LSE_partial")}
        return (
            Step("split", "decode_split", split),
            Step("combine", "decode_combine", {**both, **heads}, feeds=fed, l2_state="warm"),
        )

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded Q, K, V, and O of them."""
        names = ("batch", "heads_q", "heads_kv", "seqlen_kv", "head_dim", "dtype")
        inputs, expected = whole(DecodeProblem(**{name: params[name] for name in names}, num_splits=1), seed)
        return inputs, {f"{self.steps(machine, params, mode)[-1].name}.O": expected["O"]}


DECODE_SPLIT, DECODE_COMBINE, DECODE_ATTENTION = DecodeSplit(), DecodeCombine(), DecodeAttention()
