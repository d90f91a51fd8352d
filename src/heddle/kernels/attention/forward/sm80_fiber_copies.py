"""Attention of A100 with FIBER where registers are shared inside a subpartition: K and V lie once in each of the four.

Roles and bits are those of `sm80_fiber`. Four wefts copy a quarter of a block each into shared memory, meet, and load
all of it as fragments, each into its own subpartition, so that no product reads in another one. That takes four times
the registers for a key, and four times the loads from shared memory; so a step has fewer keys.
"""

from __future__ import annotations

from collections.abc import Callable

from heddle.kernels.attention.forward.sm80_fiber import Products, write_roles
from heddle.kernels.attention.forward.sm80_fiber_config import GROUP, Fiber80Config
from heddle.kernels.attention.forward.sm80_fiber_memory import Memory
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, RegisterHandle, kernel


class CopiesMemory(Memory):
    """K and V in each subpartition."""

    def declare_keys_and_values(self, problem: AttentionProblem) -> None:
        """Declare both in the pool: quarter q of the rows is the copy in subpartition q."""
        shape = (GROUP * self.config.tile_n, problem.head_dim)
        self.keys, self.values = (self.k.pool(name, shape, problem.dtype)[0] for name in ("keys", "values"))

    def _block(self, which: int, fragments: RegisterHandle, copy: Callable[[], None] | None = None) -> None:
        """All rows of the oldest copy to each subpartition, once all four wefts have their part.

        A copy goes where rows were two blocks ago: who has come here has loaded them, as the block after that takes the
        same registers of the pool.
        """
        k = self.k
        k.cp_async_wait(pending=self.config.ahead - 1)
        k.sync(id=1 + which)
        if copy:
            copy()
        k.cp_async_commit()
        k.load(fragments, self.kv_shared[which][self.rings[which]], each=True)
        k.set_busy_bit(fragments, "full")
        self.rings[which].advance()


class CopiesProducts(Products):
    """Each weft multiplies by the copy of its own subpartition."""

    def _multiply(
        self,
        acc: RegisterHandle,
        a: RegisterHandle,
        b: RegisterHandle,
        *,
        accumulate: bool = True,
        transposed: bool = False,
    ) -> None:
        self.k.mma_apart(acc, a, b, accumulate=accumulate, transposed=transposed)


@kernel
def attention_sm80_fiber_copies(
    k: Builder, problem: AttentionProblem, config: Fiber80Config, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of Q, as `attention_sm80_fiber`."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = CopiesMemory(k, problem, config)
    write_roles(k, problem, config, items, memory, CopiesProducts(k, problem, config, memory))
