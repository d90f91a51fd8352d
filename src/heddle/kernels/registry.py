"""All kernels by name."""

from __future__ import annotations

from typing import Any

from heddle.errors import unknown_name
from heddle.kernels._kernel import Kernel
from heddle.kernels.attention.backward_kernel import ATTENTION_BWD
from heddle.kernels.attention.backward_rows_kernel import CONVERT, GROUP_SUM, PREPROCESS
from heddle.kernels.attention.kernel import ATTENTION, ATTENTION_FA2
from heddle.kernels.gemm.kernel import Gemm
from heddle.kernels.norm.kernel import RMSNORM

KERNELS: dict[str, Kernel[Any]] = {
    kernel.name: kernel
    for kernel in (ATTENTION, ATTENTION_FA2, ATTENTION_BWD, PREPROCESS, CONVERT, GROUP_SUM, Gemm(), RMSNORM)
}
"""The kernels that `heddle run` and `heddle.run` know."""


def find_kernel(name: str) -> Kernel[Any]:
    """Return a kernel by name; raises UserError with the nearest match."""
    if name not in KERNELS:
        raise unknown_name("kernel", name, KERNELS)
    return KERNELS[name]
