"""The FIBER-native attention kernels, by architecture."""

from __future__ import annotations

from heddle.kernels._native import NativeKernels

NATIVE: NativeKernels = {}
"""What `heddle run attention --mode fiber` runs; an architecture that is not listed has none."""
