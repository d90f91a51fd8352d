"""Kernels of a cubin as rows: resources, instructions with control field, live registers and source lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from heddle.errors import UserError
from heddle.isa.codec import Decoded
from heddle.isa.cubin.cubin import Cubin, Function
from heddle.isa.cubin.flow import EXACT, flow_of
from heddle.isa.cubin.lines import line_of_instructions
from heddle.isa.cubin.listing import disassemble
from heddle.isa.cubin.resources import resources
from heddle.isa.cubin.shadow import shadow_cubin
from heddle.isa.cubin.shift import used_instructions
from heddle.isa.instruction import Control
from heddle.isa.liveness import count_of, live_sets
from heddle.isa.words import WORD_BYTES, to_ints

NO_BARRIER = 7


def kernel_row(cubin: Cubin, kernel: Function) -> dict[str, Any]:
    """Return a kernel, with the functions in its section, as data: one row an instruction, NOPs at the end left out.

    `live` is None where the tables do not know every opcode: what the others read and write would be missing.
    """
    decoded, flow = flow_of(cubin, kernel.section, EXACT)
    known = not (decoded.form < 0).any()
    live = [count_of(one) if known else None for one in live_sets(flow, EXACT)]
    count = used_instructions(decoded.words)
    lines = line_of_instructions(cubin, kernel.section, count)
    words, listed = to_ints(decoded.words), _by_nvidia(cubin, kernel.section)
    rows = [
        {
            "offset": index * WORD_BYTES,
            "word": f"{words[index]:032x}",
            "text": _text(decoded, index, words[index], listed),
            "control": control_text(decoded[index].control),
            "live": live[index],
            "line": f"{lines[index].file}:{lines[index].line}" if lines[index] else "",  # type: ignore[union-attr]
        }
        for index in range(count)
    ]
    return {"kernel": kernel.name, "resources": asdict(resources(cubin, kernel)), "instructions": rows}


def control_text(control: Control) -> str:
    """Return the control field as text: waits, read and write barrier, yield, stall, reuse; `-` where there is none."""
    waits = "".join(str(one) if control.wait >> one & 1 else "-" for one in range(6))
    read, write = (str(one) if one != NO_BARRIER else "-" for one in (control.read_barrier, control.write_barrier))
    reuse = "".join(letter if control.reuse >> place & 1 else "-" for place, letter in enumerate("ABCD"))
    return f"W{waits} R{read} W{write} {'Y' if control.yields else '-'} S{control.stall:02d} {reuse}"


def _by_nvidia(cubin: Cubin, section: int) -> list[str]:
    """Return NVIDIA's texts of a section's instructions, none where its disassembler is missing or refuses the file."""
    try:
        found = disassemble(shadow_cubin(cubin)).get(cubin.elf.sections[section].name)
    except UserError:
        return []
    return found.texts if found else []


def _text(decoded: Decoded, index: int, word: int, listed: list[str]) -> str:
    """Return the text of an instruction: NVIDIA's, but for FIBER's own instructions; else name and word."""
    form = int(decoded.form[index])
    fiber = form >= 0 and decoded.table.forms[form].own_fiber_bits
    if fiber or index >= len(listed):
        return f"{decoded[index].mnemonic} 0x{word:032x}"
    return listed[index]
