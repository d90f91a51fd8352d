"""Shadow cubins: what NVIDIA's tools can read of extended code, FIBER instructions as NOP and FIBER bits cleared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heddle.isa.cubin.cubin import Cubin, opcodes
from heddle.isa.cubin.layout import write_elf
from heddle.isa.cubin.shift import NOP
from heddle.isa.words import Words, from_ints, get, put, to_bytes

FIBER_OPCODES = (0x9F8, 0x9F9, 0x9FA)
DEPENDENCE = 0x91A
EXTENSION_BIT = 48
"""Bit of a DEPBAR that makes it one of the busy bitmap."""
DESCRIPTOR_OPCODES = (0x1980, 0x1981, 0x1985, 0x1986, 0x198A, 0x198E, 0x19A8, 0x1DAE, 0x1FAE)
"""Global-memory forms of sm_80 that use bit 101 for their descriptor."""


def shadow_words(words: Words, architecture: str) -> Words:
    """Return the words with FIBER instructions replaced by NOP and FIBER bits [104:92] cleared elsewhere."""
    out, codes = words.copy(), opcodes(words)
    descriptor = get(words, 101, 101) * (np.isin(codes, DESCRIPTOR_OPCODES) & (architecture == "sm_80"))
    put(out, 104, 92, 0)
    put(out, 101, 101, descriptor)
    extended = (codes == DEPENDENCE) & (get(words, EXTENSION_BIT, EXTENSION_BIT) == 1)
    out[np.isin(codes, FIBER_OPCODES) | extended] = from_ints([NOP])
    return out


def shadow_cubin(cubin: Cubin) -> bytes:
    """Return the bytes of the shadow of a cubin."""
    sections = list(cubin.elf.sections)
    for index in cubin.texts:
        sections[index] = sections[index].with_data(to_bytes(shadow_words(cubin.words(index), cubin.architecture)))
    return write_elf(replace(cubin.elf, sections=tuple(sections)), cubin.elf)
