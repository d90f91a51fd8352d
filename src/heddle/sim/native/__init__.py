"""A small compiler for the engine's core: restricted Python functions to machine code, by LLVM (through llvmlite).

The core uses a tiny part of Python: 64-bit integers, loads and stores in flat int64 arrays, if, while, for-range and
calls. Why not Numba: docs/decisions/0005-core-compiled-as-one-module.md.
"""

from heddle.sim.native.build import NativeFunction, build_counting, build_unit, compile_function

__all__ = ["NativeFunction", "build_counting", "build_unit", "compile_function"]
