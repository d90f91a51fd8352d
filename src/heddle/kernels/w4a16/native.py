"""FIBER-native W4A16 kernels by architecture."""

from __future__ import annotations

from typing import Any

from heddle.kernels._native import NativeKernel
from heddle.kernels.w4a16.sm80_fiber_config import SM80_FIBER
from heddle.kernels.w4a16.sm90_fiber_config import SM90_FIBER
from heddle.kernels.w4a16.sm100_fiber_config import SM100_FIBER

NATIVE: dict[str, NativeKernel[Any, Any]] = {"sm_80": SM80_FIBER, "sm_90": SM90_FIBER, "sm_100": SM100_FIBER}
