"""The main kernel of the backward pass of FlashAttention 4 on B200 by pairs of CTAs.

Roles, tiles and order are those of the open kernel (github.com/Dao-AILab/flash-attention at 0251105,
flash_attn/cute/flash_bwd_sm100.py, `use_2cta_instrs`): those of one CTA, and a warp that tells the leader that dS has
come from the other CTA. The leader's matrix warp issues the products of both.
"""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm100_fa4_config import GROUPS, HALF, PAIR, ROWS, Fa4BackwardConfig, registers
from heddle.kernels.attention.backward.sm100_fa4_out import Gradients, reduce_pair
from heddle.kernels.attention.backward.sm100_fa4_pair_compute import PairCompute
from heddle.kernels.attention.backward.sm100_fa4_pair_memory import PairMemory
from heddle.kernels.attention.backward.sm100_fa4_pair_products import PairProducts
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item

PAIR_OTHER_REGISTERS = 104
"""What setmaxnreg gives the warps that load, multiply and pass on."""


def pair_of_ctas(k: Builder, problem: AttentionProblem, config: Fa4BackwardConfig, items: dict[str, list[int]]) -> None:
    """The way of dQ out, two groups that compute, products of the pair, loads and the relay."""
    k.flops, k.cluster_size = backward_flops(problem), PAIR
    k.work_items(items, clusters=len(items["key"]), schedule="launch")
    memory = PairMemory(k, problem)
    has = {name: any(items[name]) for name in ("more", "only")}
    reduce_registers, compute_registers = registers(problem, config)
    with k.role("reduce", warps=GROUP_WARPS, registers=reduce_registers):
        reduce_pair(k, memory)
    for group in range(GROUPS):
        compute, gradients = PairCompute(k, problem, memory, group), Gradients(k, problem, memory, group)
        with k.role(f"compute{group}", warps=GROUP_WARPS, registers=compute_registers):
            k.cluster_sync()
            for item in k.work():
                compute.blocks(item)
                gradients.run(item)
    with k.role("matrix", warps=1, registers=PAIR_OTHER_REGISTERS, leader_only=True):
        PairProducts(k, memory).run(has)
    with k.role("load", warps=1, registers=PAIR_OTHER_REGISTERS):
        Loads(k, memory).run(has)
    with k.role("relay", warps=1, registers=PAIR_OTHER_REGISTERS):
        relay(k, memory)


def relay(k: Builder, memory: PairMemory) -> None:
    """Tell the leader, block by block, that half of dS has come from the other CTA."""
    k.cluster_sync()
    for item in k.work():
        for _ in k.range(item.blocks, name="relayed"):
            memory.received.wait(memory.step)
            memory.exchanged.arrive(cta="leader")
            memory.step.advance()


class Loads:
    """The warp that loads: K with the first block of Q, V with that of dO, K across, then block by block."""

    def __init__(self, k: Builder, memory: PairMemory) -> None:
        self.k, self.memory = k, memory

    def run(self, has: dict[str, bool]) -> None:
        """All loads of a CTA; Q for dK comes a block later than Q for S."""
        k, memory = self.k, self.memory
        k.cluster_sync()
        for item in k.work():
            self.queries(item, item.first, first=True)
            self.outputs(item, item.first, first=True)
            memory.load_keys_across(item)
            if has["more"]:
                with k.when(item.more):
                    for block in k.range(item.more, name="loaded"):
                        row = item.first + block * ROWS
                        self.queries_across(item, row)
                        self.queries(item, row + ROWS)
                        self.outputs(item, row + ROWS)
            self.queries_across(item, item.last)

    def queries(self, item: Item, row: Index, *, first: bool = False) -> None:
        """Half of the rows of a block of Q, and LSE."""
        k, memory = self.k, self.memory
        tiles = [(memory.q, memory.tensors.q, (item.q_plane, row + k.cta_rank * HALF, Index()))]
        if first:
            tiles.insert(0, (memory.keys, memory.tensors.k, (item.kv_plane, memory.key(item), Index())))
        memory.load(memory.of_q, tuple(tiles))
        memory.queries.load(item, row)

    def queries_across(self, item: Item, row: Index) -> None:
        """Half of the columns of a block of Q."""
        k, memory = self.k, self.memory
        corner = (item.q_plane, row, k.cta_rank * memory.half)
        memory.load(memory.of_q_across, ((memory.q_across, memory.tensors.q, corner),))

    def outputs(self, item: Item, row: Index, *, first: bool = False) -> None:
        """Half of the rows and half of the columns of a block of dO, and the row sums."""
        k, memory, source = self.k, self.memory, self.memory.tensors.do
        tiles = [
            (memory.do_across, source, (item.q_plane, row, k.cta_rank * memory.half)),
            (memory.do, source, (item.q_plane, row + k.cta_rank * HALF, Index())),
        ]
        if first:
            tiles.insert(0, (memory.values, memory.tensors.v, (item.kv_plane, memory.key(item), Index())))
        memory.load(memory.of_do, tuple(tiles))
        memory.outputs.load(item, row)
