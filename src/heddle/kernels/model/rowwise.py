"""What kernels have in common that go through rows once: warps of a CTA, one configuration, references."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.kernels._kernel import Kernel
from heddle.kernels._parameters import Parameter, TileParameter
from heddle.machine.spec import Machine

WARPS = 8
"""Of a CTA."""
LANE_COLUMNS = 8
"""Of 16 bits, 16 bytes: what a lane loads and stores at a time."""
WORKING_REGISTERS = 40
"""Of a thread beside its tiles: addresses, values on their way to a store."""
ROWS = Parameter("rows", int, 4096, "vectors: tokens of a layer", small=40)
ELEMENTS = Parameter("dtype", str, "fp16", "type of all tensors", choices=("fp16", "bf16"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsConfig:
    """A CTA takes `rows` rows."""

    rows: int

    def label(self) -> str:
        """Return a short name, as in `8 rows`."""
        return f"{self.rows} rows"


class RowwiseKernel(Kernel[RowsConfig]):
    """One launch that reads each row once and writes it once."""

    architectures = ("sm_80", "sm_90", "sm_100")
    tile: tuple[TileParameter, ...] = ()

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[RowsConfig]:
        """Return the rows of a CTA, as many as its warps have side by side."""
        self.problem(params)
        return [RowsConfig(rows=self.cta_rows(self.check(params)))]

    @abstractmethod
    def cta_rows(self, params: Mapping[str, Any]) -> int:
        """Return the rows of a CTA."""
