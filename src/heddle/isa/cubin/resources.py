"""What a kernel needs: registers, shared memory and stack, parameters, barriers, and the sizes of block it was made
for.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.isa.cubin import attributes
from heddle.isa.cubin.cubin import Cubin, Function
from heddle.isa.cubin.rewrite import SECTION_BITS
from heddle.isa.cubin.shift import used_instructions
from heddle.isa.words import WORD_BYTES

SHARED, CONSTANTS = ".nv.shared.", ".nv.constant0."
REGISTER_SHIFT = 24
"""Older files have the number of registers in the top byte of sh_info of the code, too."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one kernel; None where the file does not say. Bytes are those of one block, or of one thread
    (stack).
    """

    instructions: int
    registers: int | None
    static_shared_bytes: int
    stack_bytes: int
    parameter_bytes: int | None
    barriers: int | None
    max_threads: int | None
    required_threads: int | None


def kernel_attributes(cubin: Cubin, kernel: Function) -> tuple[attributes.Attribute, ...]:
    """Return the attributes of one kernel, none where it has no section of them."""
    for section in cubin.elf.sections:
        if section.name.startswith(attributes.INFO + ".") and section.info & SECTION_BITS == kernel.section:
            return attributes.parse(section.data, section.name)
    return ()


def resources(cubin: Cubin, kernel: Function) -> Resources:
    """Return what one kernel needs. Raises UserError where its attributes are damaged."""
    own = {one.code: one for one in kernel_attributes(cubin, kernel)}
    common = cubin.elf.named(attributes.INFO)
    shared = cubin.elf.named(SHARED + kernel.name)
    by_symbol = {} if common is None else _by_symbol(attributes.parse(common.data, common.name), kernel.symbol)
    words = cubin.words(kernel.section)[kernel.start // WORD_BYTES : (kernel.start + kernel.size) // WORD_BYTES]
    in_header = cubin.elf.sections[kernel.section].info >> REGISTER_SHIFT
    parameters = own.get(attributes.PARAMETER_BYTES)
    barriers = own.get(attributes.BARRIERS)
    return Resources(
        instructions=used_instructions(words) if len(words) else 0,
        registers=by_symbol.get(attributes.REGISTERS, in_header or None),
        static_shared_bytes=shared.size if shared else 0,
        stack_bytes=by_symbol.get(attributes.FRAME_BYTES, 0),
        parameter_bytes=parameters.value if parameters else None,
        barriers=barriers.value if barriers else None,
        max_threads=threads(own.get(attributes.MAX_THREADS)),
        required_threads=threads(own.get(attributes.REQUIRED_THREADS)),
    )


def threads(attribute: attributes.Attribute | None) -> int | None:
    """Return the number of threads of an attribute that holds the three sizes of a block."""
    if attribute is None:
        return None
    x, y, z = (*attribute.numbers(), 1, 1, 1)[:3]
    return x * y * z


def _by_symbol(found: tuple[attributes.Attribute, ...], symbol: int) -> dict[int, int]:
    """Return the values of attributes that hold pairs of a symbol and a number."""
    pairs = [(one.code, one.numbers()) for one in found if len(one.payload) == 8]
    return {code: numbers[1] for code, numbers in pairs if numbers[0] == symbol}
