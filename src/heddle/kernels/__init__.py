"""Kernels written in `heddle.lang`; `heddle.kernels.registry` lists them."""

from heddle.kernels._kernel import MODES, Kernel, Parameter
from heddle.kernels.registry import KERNELS, find_kernel

__all__ = ["KERNELS", "MODES", "Kernel", "Parameter", "find_kernel"]
