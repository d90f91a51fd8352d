"""Attention on B200 with wefts, but without full and empty bits: the roles of FlashAttention 4, ordered by mbarriers.

Products are tcgen05.mma of 128 rows, which take their first operand from shared or tensor memory. So Q stays in shared
memory and P goes to the columns of S, as in FlashAttention 4, and with them the chain of a tile: its next scores wait
for its values. What is left of FIBER: wefts own no registers, and row factors may pass through registers that they
share. Everything else that passes between roles is in shared or tensor memory already.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Literal

from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.check import check_config, check_problem
from heddle.kernels.attention.forward.sm100_fa4 import FA4, load, store
from heddle.kernels.attention.forward.sm100_fa4_config import late_tiles, work_items
from heddle.kernels.attention.forward.sm100_fa4_correction import Correction
from heddle.kernels.attention.forward.sm100_fa4_memory import Memory
from heddle.kernels.attention.forward.sm100_fa4_products import PairProducts, SingleProducts
from heddle.kernels.attention.forward.sm100_fa4_softmax import Softmax
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

Exchange = Literal["barriers", "shared"]
"""Where row factors pass: in registers that wefts of a subpartition share, or in shared memory."""
COPY_REGISTERS = 8
"""Registers of a role of one weft."""
SOFTMAX_REGISTERS = 192
"""Registers of a softmax role, as in FlashAttention 4."""
CORRECTION_REGISTERS = 40
"""Registers of the role that rescales O: a part of it, and a factor."""
TILE = (
    TileParameter("stages", int, "blocks of K and V in shared memory, in turn", "2 or more, as shared memory holds"),
    TileParameter("exp_period", int, "columns after which the pattern of polynomials repeats", "even, up to 32"),
    TileParameter("exp_share", int, "of these the ones exponentiated by a polynomial", "even, 0 to exp_period"),
    TileParameter("rescaled", int, "unmasked blocks in which O is rescaled", "0 or more"),
)
"""What the fields of `PhasedConfig` may be, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedConfig(AttentionConfig):
    """The configuration of FlashAttention 4, and the way of row factors."""

    exchange: Exchange

    def label(self) -> str:
        """Return a short name, as in `fiber 256x128 g2 s3 poly4/16 rescale0 barriers static`."""
        name = AttentionConfig(**{f.name: getattr(self, f.name) for f in fields(AttentionConfig)}).label()
        return f"{name.removesuffix(self.order)}{self.exchange} {self.order}".replace("fa4", "fiber")


@kernel
def attention_fiber_phased(
    k: Builder, problem: AttentionProblem, config: PhasedConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Softmax of two tiles, correction, products, loads and stores, each in wefts of its own."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config, wefts=True, pooled=config.exchange == "barriers")
    has = {name: any(items[name]) for name in ("more", "only", "masked", "rescaled", "plain")}
    late = late_tiles(problem, config)
    softmax = {
        f"softmax{tile.index}": Softmax(k, problem, config, memory, tile, late[tile.index]) for tile in memory.tiles
    }
    k.set_fiber_num(load=1, store=1, matrix=1, **dict.fromkeys((*softmax, "correction"), GROUP_WARPS))

    with k.role("load", window=0, registers=COPY_REGISTERS):
        load(k, config, memory, has["more"])

    with k.role("store", window=0, registers=COPY_REGISTERS):
        store(k, memory)

    with k.role("matrix", window=0, registers=COPY_REGISTERS):
        products = PairProducts if config.groups > 1 else SingleProducts
        products(k, config, memory).run(has)

    for name, part in softmax.items():
        with k.role(name, window=part.tile.index, registers=SOFTMAX_REGISTERS):
            for item in k.work():
                part.run(item, has)

    with k.role("correction", window=1, registers=CORRECTION_REGISTERS):
        Correction(k, problem, memory, late).run(has)


def candidates(problem: AttentionProblem, machine: Machine, exchange: Exchange) -> list[PhasedConfig]:
    """Return the one configuration, that of FlashAttention 4. Raises UserError for what cannot be run."""
    check_problem(problem, FA4, machine)
    chosen = FA4.config(problem, machine)
    return [PhasedConfig(**{f.name: getattr(chosen, f.name) for f in fields(AttentionConfig)}, exchange=exchange)]


def build(problem: AttentionProblem, config: PhasedConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program. Raises UserError if the configuration does not fit."""
    check_problem(problem, FA4, machine)
    check_config(config, FA4.shared_bytes(problem, config), machine)
    FA4.check(problem, config, machine)
    items = work_items(problem, config)
    clusters = FA4.clusters(len(items["row"]), config, machine)
    return attention_fiber_phased.build("sm_100", problem, config, items, clusters, params=params)


LITERAL = NativeKernel(
    candidates=partial(candidates, exchange="shared"), build=build, tile=TILE, needs=("dynamic_parallelism",)
)
"""For machines whose wefts share no registers."""
PHASED = NativeKernel(
    candidates=partial(candidates, exchange="barriers"),
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "register_sharing"),
)
"""For machines without full and empty bits."""
