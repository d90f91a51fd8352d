"""Write a kernel in Python: tiles, roles of warps, loops that stay loops, asynchronous copies and matrix products."""

from heddle.lang._builder import Builder, KernelFunction, kernel
from heddle.lang._compute import ELEMENTWISE
from heddle.lang._fiber import PoolHandle, Token
from heddle.lang._handles import (
    GlobalBox,
    GlobalHandle,
    RegisterHandle,
    RegisterPart,
    RegisterQuarter,
    RingPosition,
    SharedBox,
    SharedHandle,
    TensorMemoryBox,
    TensorMemoryHandle,
)
from heddle.lang._index import Index
from heddle.lang._structure import Item
from heddle.lang._sync import Barrier, Cta, Ring

__all__ = [
    "ELEMENTWISE",
    "Barrier",
    "Builder",
    "Cta",
    "GlobalBox",
    "GlobalHandle",
    "Index",
    "Item",
    "KernelFunction",
    "PoolHandle",
    "RegisterHandle",
    "RegisterPart",
    "RegisterQuarter",
    "Ring",
    "RingPosition",
    "SharedBox",
    "SharedHandle",
    "TensorMemoryBox",
    "TensorMemoryHandle",
    "Token",
    "kernel",
]
