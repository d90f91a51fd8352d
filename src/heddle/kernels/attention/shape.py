"""Problem and configuration of attention: O[b, h] = softmax(Q[b, h] K[b, h']^T / sqrt(d)) V[b, h']."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._kernel import TileParameter

Schedule = Literal["fa2", "fa3", "fa4", "fiber"]
Order = Literal["launch", "static", "dynamic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionProblem:
    """Sizes in elements; query head h reads key and value head h // (heads_q / heads_kv).

    `causal`: query i sees keys up to i + seqlen_kv - seqlen_q (aligned to the end); a query that sees none gives zeros.
    `lse`: the logarithm of each row's sum of exponentials is written too, for a backward pass.
    """

    batch: int
    heads_q: int
    heads_kv: int
    seqlen_q: int
    seqlen_kv: int
    head_dim: int
    causal: bool
    dtype: str
    lse: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of Q, K and V."""
        return dtype_bytes(self.dtype)

    @property
    def output_dtype(self) -> str:
        """Type of O: that of Q, and bf16 where Q is fp8."""
        return self.dtype if self.element_bytes > 1 else "bf16"

    @property
    def group(self) -> int:
        """Query heads that share a key and value head."""
        return self.heads_q // self.heads_kv

    @property
    def diagonal(self) -> int:
        """How far the last key that a query sees lies behind the query's own number."""
        return self.seqlen_kv - self.seqlen_q

    @property
    def scale(self) -> float:
        """Factor of the scores, 1 / sqrt(d)."""
        return float(self.head_dim**-0.5)

    @property
    def flops(self) -> int:
        """Useful operations by convention: 4 B H Sq Skv d, half of it if causal."""
        full = 4 * self.batch * self.heads_q * self.seqlen_q * self.seqlen_kv * self.head_dim
        return full // 2 if self.causal else full


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """How the problem is cut and run.

    A CTA takes `tile_m` rows of Q of one head and goes through K and V in blocks of `tile_n` rows, `stages` of them in
    shared memory. `groups` warp groups divide the rows of the tile. `cluster` CTAs, one above the other, share K and V.
    `packed`: the query heads of a key and value head lie side by side in the rows of a tile. `order`: who takes which
    tile. `p_shared`: the second product reads P from shared memory, not from registers. Of FlashAttention 4: in each
    `exp_period` columns of a score row the last `exp_share` are exponentiated by a polynomial (unmasked blocks, inner
    half of the row); O is rescaled in the masked blocks and `rescaled` more, afterwards only the check is made. Of
    FlashAttention 3: with `early_release` the matrix unit gives blocks back (by an instruction that no GPU has);
    `release` 1 is the schedule of July 2024, 0 the present one.
    """

    schedule: Schedule
    tile_m: int
    tile_n: int
    stages: int
    groups: int
    order: Order
    cluster: int = 1
    packed: bool = False
    p_shared: bool = False
    exp_period: int = 16
    exp_share: int = 4
    rescaled: int = 0
    early_release: int = 0
    release: int = 0

    def label(self) -> str:
        """Return a short name, as in `fa3 128x176 g2 s2 c2 static`."""
        parts = [self.schedule, f"{self.tile_m}x{self.tile_n}", f"g{self.groups}", f"s{self.stages}"]
        parts += [f"c{self.cluster}"] if self.cluster > 1 else []
        parts += ["packed"] if self.packed else []
        parts += ["p-shared"] if self.p_shared else []
        parts += ["early-release"] if self.early_release else []
        parts += [f"release{self.release}"] if self.release else []
        if self.schedule == "fa4":
            parts += [f"poly{self.exp_share}/{self.exp_period}", f"rescale{self.rescaled}"]
        return " ".join([*parts, self.order])


TILE: tuple[TileParameter, ...] = (
    TileParameter(
        "tile_m", int, "rows of Q that a CTA takes",
        "fa2: multiples of 16 for each of its groups; fa3: 64 for each of its groups; fa4: 256, at head size 256 128",
    ),
    TileParameter(
        "tile_n", int, "keys of one step",
        "fa2: multiples of 16; fa3: of 16, in fp8 of 32, 64 to 256; fa4: 128, at head size 256 64",
    ),
    TileParameter(
        "stages", int, "blocks of K and of V in shared memory",
        "fa2: 1; fa3: 1 or more, fa4: 2 or more, as shared memory holds",
    ),
    TileParameter(
        "groups", int, "warps (fa2) or warp groups that share the rows",
        "fa2: 1 or more, as registers hold; fa3: 2, 3; fa4: 2, at head size 256 1",
    ),
    TileParameter("cluster", int, "CTAs that share K and V", "fa3: 1, 2, causal 1; else 1"),
    TileParameter("exp_period", int, "fa4: columns after which the pattern of polynomials repeats", "even, 2 to 32"),
    TileParameter("exp_share", int, "fa4: of these the ones exponentiated by a polynomial", "even, 0 to exp_period"),
    TileParameter("rescaled", int, "fa4: unmasked blocks in which O is rescaled", "0 or more"),
    TileParameter("early_release", int, "fa3: the matrix unit itself gives blocks back (hypothetical)", "0, 1"),
    TileParameter("release", int, "fa3: 1 is the schedule of the first release, 0 the present one", "0, 1"),
)  # fmt: skip
"""What the fields of `AttentionConfig` may be, for people."""
