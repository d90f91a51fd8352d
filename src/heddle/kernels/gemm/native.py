"""The FIBER-native GEMM kernels, by architecture."""

from __future__ import annotations

from heddle.kernels._native import NativeKernels
from heddle.kernels.gemm.sm80_fiber_config import SM80_FIBER
from heddle.kernels.gemm.sm90_fiber_config import SM90_FIBER
from heddle.kernels.gemm.sm100_fiber_config import SM100_FIBER

NATIVE: NativeKernels = {"sm_80": SM80_FIBER, "sm_90": SM90_FIBER, "sm_100": SM100_FIBER}
"""What `heddle run gemm --mode fiber` runs; an architecture that is not listed has none."""
