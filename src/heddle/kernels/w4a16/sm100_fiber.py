"""W4A16 on B200 with FIBER: weights as first operands in shared vector registers, sums in tensor memory.

Weights are the rows of a tile and tokens its columns (`turned`). One weft copies slices of A into shared memory; four
make the weights of a block, each the 32 rows of its subpartition, a row a lane; four multiply 128 rows in lockstep;
four store. Sums of a tile grow in one of two places of tensor memory, and a token says that a tile's last product has
been issued, as in the FIBER-native GEMM. Weights never lie in shared or tensor memory.
"""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.sm100_fiber import CHUNK, GROUP, SLOTS, TEMPORARIES, TILE_M
from heddle.kernels.w4a16.makers import AqlmMaker, AwqMaker, Form, Target, maker_items
from heddle.kernels.w4a16.shape import TILE_K, W4Problem
from heddle.kernels.w4a16.turned import Tokens, TurnedTiles
from heddle.lang import Builder, Item, kernel

BLOCKS = 2
"""Of weights in the pool: one is multiplied while the other is made."""
PAIR = BLOCKS * TILE_K
MAKE_REGISTERS = 140
"""Registers of a weft that makes weights: codes of two blocks, values of columns, entries on their way, temporaries."""
STORE_REGISTERS = 3 * CHUNK + TEMPORARIES


def tile_pairs(problem: W4Problem, tiles: TurnedTiles) -> dict[str, list[int]]:
    """Return the work items: two tiles each, the second of them none at the end of an odd number."""
    found = tiles.items(problem, 1)
    corners = list(zip(found["row"], found["w_col"], strict=True))
    first, second = corners[::2], corners[1::2]
    more = [1] * len(second) + [0] * (len(first) - len(second))
    second += [(0, 0)] * (len(first) - len(second))
    items: dict[str, list[int]] = {"second": more}
    for slot, chosen in enumerate((first, second)):
        items[f"row{slot}"] = [row for row, _ in chosen]
        items |= maker_items(problem, [col for _, col in chosen], str(slot))
    pairs = ceil_div(problem.k, PAIR)
    return items | {
        "k_blocks": [BLOCKS * pairs] * len(first), "pairs": [pairs] * len(first), "middle": [pairs - 2] * len(first),
    }  # fmt: skip


class _Roles:
    """What the roles share, and the code of each for one tile, whose sums lie in place `slot`."""

    def __init__(self, k: Builder, problem: W4Problem, tiles: TurnedTiles) -> None:
        self.k, self.tiles = k, tiles
        self.tokens = Tokens(k, problem, tiles, GROUP)
        self.weights = k.pool("w", (TILE_M, TILE_K), problem.dtype, stages=BLOCKS)
        targets = [Target(self.weights[i], 0) for i in range(BLOCKS)]
        self.maker = (AqlmMaker if problem.looks_up else AwqMaker)(
            k, problem, targets, TILE_M, TILE_K, Form("second", (1, GROUP), all_targets=True)
        )
        self.c_global = k.tensor("C", (problem.m, problem.n), problem.dtype, role="output")
        self.total = [k.tensor_memory(f"total_{slot}", (TILE_M, tiles.tokens), "fp32") for slot in range(SLOTS)]
        self.issued = [k.token(f"issued_{slot}") for slot in range(SLOTS)]
        self.part = [k.registers(f"part_{i}", (TILE_M, CHUNK), "fp32", warps=(GROUP, 1)) for i in range(2)]

    def copy(self, item: Item, slot: int) -> None:
        """Global to shared memory."""
        self.tokens.load(item, getattr(item, f"row{slot}"))

    def make(self, item: Item, slot: int) -> None:
        """The weights of a tile, two blocks at a time."""
        k, maker = self.k, self.maker
        maker.tile = str(slot)
        maker.start(item)
        for number in range(BLOCKS):
            maker.block(item, 0, number)
            k.set_busy_bit(self.weights[number], "full")
        for pair in k.range(item.pairs - 1, name="pair"):
            maker.step(item, pair)
            for number in range(BLOCKS):
                maker.block(item, pair + 1, number)
                k.set_busy_bit(self.weights[number], "full")

    def multiply(self, item: Item, slot: int) -> None:
        """Add up a tile in tensor memory; the last product holds it, and the token says that it was the last."""
        k, last = self.k, BLOCKS - 1
        for i in range(BLOCKS):
            self._product(slot, i, accumulate=i > 0, give_back=i > 0)
        with k.when(item.middle):
            for _ in k.range(item.middle):
                for i in range(BLOCKS):
                    self._product(slot, i)
        for i in range(BLOCKS):
            self._product(slot, i, last=i == last)
        self.tokens.empty.arrive(self.tokens.ring.previous, read=self.weights[last])
        self.issued[slot].give()

    def _product(
        self, slot: int, i: int, *, accumulate: bool = True, last: bool = False, give_back: bool = True
    ) -> None:
        """The product of one block; the slice of the block before it is given back."""
        k, total, tokens = self.k, self.total[slot][:], self.tokens
        tokens.wait()
        k.mma(total, self.weights[i], tokens.shared[tokens.ring], accumulate=accumulate)
        k.set_busy_bit(self.weights[i], "empty")
        if last:
            k.set_busy_bit(total, "full")
        if give_back:
            tokens.empty.arrive(tokens.ring.previous, read=self.weights[i - 1])
        tokens.ring.advance()

    def store(self, item: Item, slot: int) -> None:
        """Tensor to global memory, tokens as rows: the lanes of a weft are neighbours there."""
        k = self.k
        row, col = getattr(item, f"row{slot}"), getattr(item, f"w_col{slot}")
        self.issued[slot].take()
        for first in range(0, self.tiles.tokens, CHUNK):
            part, columns = self.part[first // CHUNK % 2], self.total[slot][:].columns(first, CHUNK)
            k.load(part, columns)
            k.set_busy_bit(columns, "empty")
            k.store(self.c_global[row + first, col], part, transposed=True)


@kernel
def w4_sm100_fiber(k: Builder, problem: W4Problem, tiles: TurnedTiles, fiber_threads: int) -> None:
    """Persistent over pairs of tiles of C."""
    k.flops = problem.flops
    k.work_items(tile_pairs(problem, tiles), clusters=fiber_threads)
    roles = _Roles(k, problem, tiles)
    k.set_fiber_num(copy=1, make=GROUP, multiply=GROUP, store=GROUP)
    windows = {"copy": (0, TEMPORARIES), "make": (0, MAKE_REGISTERS), "multiply": (0, TEMPORARIES)}
    windows["store"] = (1, STORE_REGISTERS)
    for name, (window, registers) in windows.items():
        with k.role(name, window=window, registers=registers):
            if name == "make":
                roles.maker.begin()
            for item in k.work():
                getattr(roles, name)(item, 0)
                with k.when(item.second):
                    getattr(roles, name)(item, 1)
