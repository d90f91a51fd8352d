"""Problem and configuration of a W4A16 GEMM: C[m, n] = A[m, k] W[k, n], A and C fp16, W quantised.

AWQ: a weight of 4 bits, less the zero point of its column and group of k, times the scale of the same. AQLM: eight
weights of a column along k are an entry of a codebook of 65,536 (1x16), or the sum of two entries of codebooks of 256
(2x8), times the scale of the column: 2 bits a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels._kernel import TileParameter
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem

AUTO = "auto"
IMPLEMENTATIONS = (AUTO, "mma.sync", "wgmma", "tcgen05", "gemv")
"""Of today's kernel: the code of A100, which all GPUs run; weights as first operand in registers on H100, in
tensor memory on B200; AQLM for few rows of A without matrix instructions. auto: see `choice`."""
SCHEMES = ("awq", "aqlm_1x16", "aqlm_2x8")
ENTRIES = {"aqlm_1x16": 65536, "aqlm_2x8": 512}
"""Of all codebooks of AQLM together, of eight weights each."""
BOOKS = {"aqlm_1x16": 1, "aqlm_2x8": 2}
GROUPS = (128, 64)
"""Weights of a column, along k, that share a scale and a zero point."""
TILE_K = 64
"""Elements of k in one stage of A: one row of the 128-byte swizzle."""
ELEMENT_BYTES = 2
"""Of A and C, fp16 or bf16."""
COPIES = 8
"""Of codebooks in shared memory, side by side: one for each lane of a quarter of a warp."""
STEP_K = 16
"""Of one mma.sync (PTX ISA, m16n8k16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class W4Problem:
    """Sizes in elements, how W is quantised, and the type of A and C."""

    m: int
    n: int
    k: int
    scheme: str
    group: int
    dtype: str
    implementation: str = "mma.sync"

    @property
    def flops(self) -> int:
        """Useful operations: a multiply and an add for each of m n k products."""
        return 2 * self.m * self.n * self.k

    @property
    def looks_up(self) -> bool:
        """Whether weights are entries of codebooks."""
        return self.scheme != "awq"

    @property
    def block(self) -> int:
        """Elements of k that the main loop takes in one turn: a group of AWQ, a stage of AQLM."""
        return TILE_K if self.looks_up else self.group

    @property
    def gemm(self) -> GemmProblem:
        """The same product with fp16 weights."""
        return GemmProblem(m=self.m, n=self.n, k=self.k, dtype=self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class W4Config:
    """A CTA of `warps` warps side by side along n makes a tile; `stages` of A are in shared memory.

    `split_k` CTAs share the products of one tile. `implementation`: whose tile it is, where those of several are
    compared; empty where the problem says it.
    """

    tile_m: int
    tile_n: int
    stages: int
    warps: int
    split_k: int = 1
    implementation: str = ""

    def label(self) -> str:
        """Return a short name, as in `64x256x64 s3 w4`, and whose tile it is where it says that."""
        parts = [f"{self.tile_m}x{self.tile_n}x{TILE_K}", f"s{self.stages}", f"w{self.warps}"]
        slices = [f"k{self.split_k}"] if self.split_k > 1 else []
        return " ".join([*parts, *slices, *([self.implementation] if self.implementation else [])])

    def gemm(self, block: int) -> GemmConfig:
        """Return what is common with a GEMM of fp16 weights whose step of k is a block: epilogue, order of tiles."""
        return GemmConfig(
            schedule="multistage",
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=block,
            stages=self.stages,
            split_k=self.split_k,
            warps=(1, self.warps),
        )


TILE = (
    TileParameter("tile_m", int, "rows of C that a CTA makes", "multiples of 16"),
    TileParameter("tile_n", int, "columns of C that a CTA makes", "multiples of 16 for each warp"),
    TileParameter("stages", int, "slices of A in flight, and one", "1 + a multiple of group / 64 (AWQ); 2 or more"),
    TileParameter("warps", int, "warps of a CTA, side by side along n", "1 or more"),
    TileParameter("split_k", int, "CTAs that share the products of a tile", "1 or more; in whole groups, or stages"),
)
"""What the fields of `W4Config` may be, for people."""
