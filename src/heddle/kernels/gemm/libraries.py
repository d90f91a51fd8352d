"""Tiles of libraries whose source is public, as far as the kernels here can run them.

DeepGEMM (github.com/deepseek-ai/DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp at 54e2261): a dense product on H100 has
tiles of 64, 128 or 256 rows and of 16 to 256 columns in steps of 16, not both above 128, in clusters of one or two
along either side, and never cuts k. One group of warps multiplies 64 rows there and two share more; here 64 rows run in
the ping-pong schedule, where the second group has the next tile.
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.kernels.gemm.shape import Schedule

Sm90Tile = tuple[Schedule, int, int]
"""Schedule, rows, columns."""

_COLUMNS = range(16, 257, 16)
_DEEPGEMM_SM90: tuple[Sm90Tile, ...] = (
    *(("pingpong", 64, columns) for columns in _COLUMNS),
    *(("cooperative", 128, columns) for columns in _COLUMNS),
    *(("cooperative", 256, columns) for columns in _COLUMNS if columns <= 128),
)
LIBRARIES: Mapping[str, Mapping[str, tuple[Sm90Tile, ...]]] = {"deepgemm": {"sm_90": _DEEPGEMM_SM90}}
"""Tiles by library and architecture."""
