"""All kernels and composites by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.errors import UserError, unknown_name
from heddle.kernels._composite import Composite
from heddle.kernels._kernel import Kernel
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.kernels.attention.backward.rows_kernel import (
    CLEAR_KEYS,
    CONVERT,
    CONVERT_KEYS,
    GROUP_SUM,
    PREPROCESS,
    PREPROCESS_FA3,
)
from heddle.kernels.attention.decode.attention import DECODE_ATTENTION
from heddle.kernels.attention.decode.kernel import (
    DECODE_COMBINE,
    DECODE_SPLIT,
    DECODE_SPLIT_FA3,
    DECODE_SPLIT_FA4,
    DECODE_WHOLE,
    DECODE_WHOLE_FA4,
)
from heddle.kernels.attention.kernel import ATTENTION, ATTENTION_FA2, ATTENTION_LSE
from heddle.kernels.gemm.kernel import Gemm
from heddle.kernels.model.ffn import FFN
from heddle.kernels.model.llama import LLAMA
from heddle.kernels.model.projection import PROJECTION
from heddle.kernels.model.rope import ROPE
from heddle.kernels.model.silu_mul import SILU_MUL
from heddle.kernels.norm.kernel import RMSNORM
from heddle.kernels.w4a16.kernel import W4A16

Entry = Kernel[Any] | Composite

ATTENTIONS = (
    *(ATTENTION, ATTENTION_FA2, ATTENTION_LSE, ATTENTION_BWD, PREPROCESS, CONVERT, GROUP_SUM),
    *(PREPROCESS_FA3, CLEAR_KEYS, CONVERT_KEYS),
)
DECODING = (DECODE_SPLIT, DECODE_SPLIT_FA3, DECODE_SPLIT_FA4, DECODE_WHOLE, DECODE_WHOLE_FA4, DECODE_COMBINE)
KERNELS: dict[str, Kernel[Any]] = {
    kernel.name: kernel for kernel in (*ATTENTIONS, *DECODING, Gemm(), RMSNORM, ROPE, SILU_MUL, W4A16)
}
"""The kernels: one launch each."""
COMPOSITES: dict[str, Composite] = {
    composite.name: composite for composite in (DECODE_ATTENTION, FFN, PROJECTION, LLAMA)
}
"""The composites: sequences of launches of kernels."""


def entries() -> dict[str, Entry]:
    """Return what `heddle run` and `heddle.run` know, by name."""
    return {**KERNELS, **COMPOSITES}


def find_entry(name: str) -> Entry:
    """Return a kernel or a composite by name; raises UserError with the nearest match."""
    found = entries()
    if name not in found:
        raise unknown_name("kernel", name, found)
    return found[name]


def find_kernel(name: str) -> Kernel[Any]:
    """Return a kernel by name; raises UserError with the nearest match, and for a composite."""
    found = find_entry(name)
    if isinstance(found, Composite):
        raise UserError(
            f"{name} is a sequence of launches and has no program of its own", hint="ask for one of its steps"
        )
    return found


def composite_of(name: str, params: Mapping[str, Any]) -> Composite | None:
    """Return the composite that answers for a kernel with these checked parameters, None where it is one launch."""
    found = find_entry(name)
    return found if isinstance(found, Composite) else found.composite(params)
