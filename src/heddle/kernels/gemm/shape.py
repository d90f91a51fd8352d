"""Problem and configuration of a GEMM: C[m, n] = A[m, k] B[n, k]^T, B stored K-major, C of the input type.

With the epilogue `silu_mul`, the first layer of Llama's FFN, B holds gate and up projection in turn, 8 rows each, and
C[m, n / 2] = silu(A gate^T) * (A up^T). With `rope`, the QKV projection, pairs of columns of the heads of Q and K are
rotated by the position of the row (`rope`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._kernel import TileParameter

Schedule = Literal["multistage", "cooperative", "pingpong", "tcgen05"]
Epilogue = Literal["none", "silu_mul", "rope"]
EPILOGUES = ("none", "silu_mul", "rope")
HEAD_DIMS = (64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProblem:
    """Sizes in elements and the type of A, B and C; n is that of B. The heads are those of rope, which needs them."""

    m: int
    n: int
    k: int
    dtype: str
    epilogue: Epilogue = "none"
    head_dim: int = 0
    heads_q: int = 0
    heads_kv: int = 0

    @property
    def gated(self) -> bool:
        """Whether two columns of the product make one of C."""
        return self.epilogue == "silu_mul"

    @property
    def rotated(self) -> bool:
        """Whether columns of Q and K are rotated."""
        return self.epilogue == "rope"

    @property
    def rotated_cols(self) -> int:
        """Columns of C that are rotated, the first ones."""
        return (self.heads_q + self.heads_kv) * self.head_dim if self.rotated else 0

    @property
    def output_cols(self) -> int:
        """Columns of C."""
        return self.n // 2 if self.gated else self.n

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A, B and C."""
        return dtype_bytes(self.dtype)

    @property
    def flops(self) -> int:
        """Useful operations: a multiply and an add for each of m n k products."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConfig:
    """How the problem is cut and run.

    The tile is that of one CTA. `cluster` CTAs of a cluster lie side by side along m and share the tile of B, or along
    n (`cluster_side`) and share that of A. `split_k` CTAs (or clusters) share the products of one tile. `warps` =
    warps along (m, n), where the schedule leaves a choice. With `early_release` (sm_90) the matrix unit gives stages
    back, by an instruction that no GPU has.
    """

    schedule: Schedule
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    cluster: int = 1
    cluster_side: Literal["m", "n"] = "m"
    split_k: int = 1
    warps: tuple[int, int] = (1, 1)
    early_release: int = 0

    @property
    def cluster_m(self) -> int:
        """CTAs of a cluster along m."""
        return self.cluster if self.cluster_side == "m" else 1

    @property
    def cluster_n(self) -> int:
        """CTAs of a cluster along n."""
        return self.cluster if self.cluster_side == "n" else 1

    def label(self) -> str:
        """Return a short name, as in `cooperative 128x256x64 s4 c2x1`."""
        parts = [self.schedule, f"{self.tile_m}x{self.tile_n}x{self.tile_k}", f"s{self.stages}"]
        parts += [f"c{self.cluster_m}x{self.cluster_n}"] if self.cluster > 1 else []
        parts += [f"k{self.split_k}"] if self.split_k > 1 else []
        parts += ["early-release"] if self.early_release else []
        return " ".join(parts)


TILE = (
    TileParameter(
        "schedule", str, "how warps share the work",
        "multistage (sm_80); cooperative, pingpong (sm_90); tcgen05 (sm_100)",
    ),
    TileParameter(
        "tile_m", int, "rows of C that a CTA makes",
        "multistage: multiples of 16 for each row of warps; cooperative: of 128; pingpong: of 64; tcgen05: 128",
    ),
    TileParameter(
        "tile_n", int, "columns of C that a CTA makes",
        "multistage: multiples of 16 for each column of warps; sm_90: of 8, beyond one store (64 in fp16) of 16, "
        "up to 256; sm_100: of 16, up to 256",
    ),
    TileParameter(
        "tile_k", int, "products summed in one stage",
        "multistage: 32, 64, 128, 256, so that all lanes copy 16 bytes at a time; else multiples of 16 up to 64, "
        "in fp8 of 32 up to 128",
    ),
    TileParameter("stages", int, "slices of A and B in flight", "2 or more, as shared memory holds"),
    TileParameter("cluster", int, "CTAs that share loads", "1; on sm_90 and sm_100 also 2"),
    TileParameter("cluster_side", str, "the side of C along which they lie", "m, n; tcgen05: m"),
    TileParameter(
        "split_k", int, "CTAs or clusters that share the products of a tile",
        "1 to k / tile_k; multistage: slices of at least `stages` steps",
    ),
    TileParameter(
        "warps", tuple, "warps along the rows and columns of the tile",
        "multistage: as in 4x2, which share it evenly; else 1x1",
    ),
    TileParameter("early_release", int, "sm_90: the matrix unit itself gives stages back (hypothetical)", "0, 1"),
)  # fmt: skip
"""What the fields of `GemmConfig` may be, for people."""
