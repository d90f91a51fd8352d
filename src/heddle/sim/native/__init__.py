"""A small compiler for the engine's core: restricted Python functions to machine code, by LLVM (through llvmlite).

The core uses a tiny part of Python: 64-bit integers, loads and stores in flat int64 arrays, if, while, for-range and
calls. Numba compiles such code as well, but needs a minute for this many functions, because it optimizes each of them
again in every caller; this compiler takes seconds for all of them as one module.
"""

from heddle.sim.native.build import NativeFunction, build_unit

__all__ = ["NativeFunction", "build_unit"]
