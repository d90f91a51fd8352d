"""Kernels written in `heddle.lang`, and sequences of them; `heddle.kernels.registry` lists them."""

from heddle.kernels._composite import Composite, Step
from heddle.kernels._kernel import MODES, Kernel, Parameter
from heddle.kernels.registry import KERNELS, find_entry, find_kernel

__all__ = ["KERNELS", "MODES", "Composite", "Kernel", "Parameter", "Step", "find_entry", "find_kernel"]
