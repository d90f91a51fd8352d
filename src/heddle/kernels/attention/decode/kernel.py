"""Registry entries of the launches of decoding; `decode_attention` is their sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._composite import Arrays
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels._limits import check_item_count
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.check import HEAD_DIMS, check_config, complete_sizes
from heddle.kernels.attention.decode.combine import decode_combine, rows_per_cta
from heddle.kernels.attention.decode.combine_fiber import FIBER as COMBINE_FIBER
from heddle.kernels.attention.decode.fiber_native import FIBER
from heddle.kernels.attention.decode.reference import combination, parts, whole
from heddle.kernels.attention.decode.shape import SPLIT_ROWS, DecodeProblem, used_splits
from heddle.kernels.attention.decode.sm90_fa3 import check_split, decode_split_fa3, split_bytes, split_config
from heddle.kernels.attention.decode.sm100_fa4 import (
    HEAD_DIMS as FA4_HEAD_DIMS,
)
from heddle.kernels.attention.decode.sm100_fa4 import (
    check_tile,
    decode_split_fa4,
    decode_whole_fa4,
    shared_bytes,
    tile_items,
    tile_of,
)
from heddle.kernels.attention.decode.split import decode_split, decode_whole, split_items
from heddle.kernels.attention.forward.sm80_fa2_config import WARP_ROWS
from heddle.kernels.attention.shape import AttentionConfig
from heddle.machine.spec import Machine

BATCH = Parameter("batch", int, 16, "sequences", small=2)
HEADS_Q = Parameter("heads_q", int, 32, "query heads", small=4)
HEADS_KV = Parameter("heads_kv", int, 0, "key and value heads, a divisor of heads_q; 0: as many", least=0, small=2)
KEYS = Parameter("seqlen_kv", int, 8192, "keys of a sequence")
HEAD_DIM = Parameter("head_dim", int, 128, "elements of a head; pad others to the next", choices=HEAD_DIMS)
HEAD_DIM_FA4 = Parameter("head_dim", int, 128, "elements of a head; pad others to the next", choices=FA4_HEAD_DIMS)
DTYPE = Parameter("dtype", str, "fp16", "type of Q, K, V and O", choices=("fp16", "bf16"))
SPLITS = Parameter("num_splits", int, 4, "parts of the keys", least=1)
DTYPE_FA3 = Parameter("dtype", str, "fp16", "type of Q, K and V", choices=("fp16", "bf16", "fp8_e4m3"))
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""The code for A100 runs everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineConfig:
    """A CTA takes `rows` rows."""

    rows: int

    def label(self) -> str:
        """Return a short name, as in `4 rows`."""
        return f"{self.rows} rows"


class DecodePart(Kernel[Any]):
    """One launch of decoding."""

    architectures: tuple[str, ...] = ARCHITECTURES
    native: Mapping[str, Any] = {}
    tile: tuple[TileParameter, ...] = ()
    arrays: Callable[[DecodeProblem, int], tuple[Arrays, dict[str, NDArray[np.float64]]]]

    def problem(self, params: Mapping[str, Any]) -> DecodeProblem:
        """Return the checked problem."""
        return DecodeProblem(**complete_sizes({"heads_kv": 0, "seqlen_kv": 1, "num_splits": 1, **self.check(params)}))

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected outputs in float64."""
        return type(self).arrays(self.problem(params), seed)


class DecodeSplit(DecodePart):
    """Partial O and logarithms of the sums of every split."""

    name = "decode_split"
    summary = "attention of one query a sequence over each of num_splits parts of its keys (FlashAttention 2)"
    parameters: tuple[Parameter, ...] = (BATCH, HEADS_Q, HEADS_KV, KEYS, HEAD_DIM, DTYPE, SPLITS)
    native: Mapping[str, Any] = dict.fromkeys(ARCHITECTURES, FIBER)
    arrays = staticmethod(parts)

    def tile_of(self, problem: DecodeProblem) -> AttentionConfig:
        """Return the one configuration of the open kernel."""
        groups = SPLIT_ROWS // WARP_ROWS
        return AttentionConfig(
            schedule="fa2", tile_m=SPLIT_ROWS, tile_n=problem.keys, stages=1, groups=groups, order="launch"
        )

    def tiles(self, problem: DecodeProblem) -> int:
        """Return the tiles of query heads, each of which goes through all splits."""
        return problem.planes * ceil_div(problem.group, self.tile_of(problem).tile_m)

    def problem(self, params: Mapping[str, Any]) -> DecodeProblem:
        """Return the checked problem."""
        problem = super().problem(params)
        tile = self.tile_of(problem)
        problem = replace(problem, block_keys=tile.tile_n)
        used = used_splits(problem.blocks, problem.num_splits)
        if problem.num_splits != used:
            raise UserError(
                f"num_splits = {problem.num_splits} leaves splits of {problem.blocks} blocks of keys empty",
                hint=f"num_splits={used} cuts them in the same way",
            )
        return problem

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[AttentionConfig]:
        """Return the one configuration of the open kernel."""
        return [self.tile_of(self.problem(params))]

    def simt_build(
        self, machine: Machine, params: Mapping[str, Any], config: AttentionConfig | None = None
    ) -> TileProgram:
        """Return the tile program."""
        problem = self.problem(params)
        config = config or self.tile_of(problem)
        check_item_count(f"{self.name} cuts {problem.planes} heads", self.tiles(problem) * problem.num_splits)
        return self.program(machine, problem, config, {**self.check(params), "config": config.label()})

    def program(
        self, machine: Machine, problem: DecodeProblem, config: AttentionConfig, params: Mapping[str, Any]
    ) -> TileProgram:
        """Return the tile program of a configuration."""
        return decode_split.build("sm_80", problem, config, split_items(problem, config.tile_m), params=params)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 4 B Hq Skv d."""
        return self.problem(params).packed.flops


class DecodeWhole(DecodeSplit):
    """O of all keys by the split kernel, which writes it itself where there is one split."""

    name = "decode_whole"
    summary = "attention of one query a sequence over all its keys, by the split kernel of FlashAttention 2"
    parameters = (BATCH, HEADS_Q, HEADS_KV, KEYS, HEAD_DIM, DTYPE)
    native: Mapping[str, Any] = {}
    arrays = staticmethod(whole)

    def program(
        self, machine: Machine, problem: DecodeProblem, config: AttentionConfig, params: Mapping[str, Any]
    ) -> TileProgram:
        """Return the tile program of a configuration."""
        return decode_whole.build("sm_80", problem, config, split_items(problem, config.tile_m), params=params)


class DecodeSplitFA3(DecodeSplit):
    """The same by FlashAttention 3 on H100."""

    name = "decode_split_fa3"
    summary = "attention of one query a sequence over each of num_splits parts of its keys (FlashAttention 3)"
    parameters = (BATCH, HEADS_Q, HEADS_KV, KEYS, HEAD_DIM, DTYPE_FA3, SPLITS)
    architectures = ("sm_90",)
    native: Mapping[str, Any] = {}

    def tile_of(self, problem: DecodeProblem) -> AttentionConfig:
        """Return the one configuration of the open kernel."""
        return split_config(problem)

    def program(
        self, machine: Machine, problem: DecodeProblem, config: AttentionConfig, params: Mapping[str, Any]
    ) -> TileProgram:
        """Return the tile program of a configuration."""
        check_config(config, split_bytes(problem, config), machine)
        check_split(problem, config, machine)
        return decode_split_fa3.build(
            machine.architecture, problem, config, split_items(problem, config.tile_m), params=params
        )


class DecodeSplitFA4(DecodeSplit):
    """The same by FlashAttention 4 on B200."""

    name = "decode_split_fa4"
    summary = "attention of one query a sequence over each of num_splits parts of its keys (FlashAttention 4)"
    parameters: tuple[Parameter, ...] = (BATCH, HEADS_Q, HEADS_KV, KEYS, HEAD_DIM_FA4, DTYPE, SPLITS)
    architectures = ("sm_100",)
    native: Mapping[str, Any] = {}
    written = staticmethod(decode_split_fa4.build)

    def tile_of(self, problem: DecodeProblem) -> AttentionConfig:
        """Return the one configuration of the open kernel."""
        return tile_of(problem)

    def program(
        self, machine: Machine, problem: DecodeProblem, config: AttentionConfig, params: Mapping[str, Any]
    ) -> TileProgram:
        """Return the tile program of a configuration."""
        check_tile(problem, config, machine)
        check_config(config, shared_bytes(problem, config), machine)
        items = tile_items(split_items(problem, config.tile_m), config)
        return type(self).written(machine.architecture, problem, config, items, params=params)


class DecodeWholeFA4(DecodeSplitFA4):
    """O of all keys by the same kernel."""

    name = "decode_whole_fa4"
    summary = "attention of one query a sequence over all its keys (FlashAttention 4)"
    parameters = (BATCH, HEADS_Q, HEADS_KV, KEYS, HEAD_DIM_FA4, DTYPE)
    arrays = staticmethod(whole)
    written = staticmethod(decode_whole_fa4.build)


class DecodeCombine(DecodePart):
    """O of all splits."""

    name = "decode_combine"
    summary = "O of one query a sequence from the partial sums of num_splits parts of its keys"
    parameters = (BATCH, HEADS_Q, HEAD_DIM, DTYPE, SPLITS)
    native: Mapping[str, Any] = dict.fromkeys(ARCHITECTURES, COMBINE_FIBER)
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


DECODE_SPLIT, DECODE_SPLIT_FA3, DECODE_COMBINE = DecodeSplit(), DecodeSplitFA3(), DecodeCombine()
DECODE_WHOLE = DecodeWhole()
DECODE_SPLIT_FA4, DECODE_WHOLE_FA4 = DecodeSplitFA4(), DecodeWholeFA4()
