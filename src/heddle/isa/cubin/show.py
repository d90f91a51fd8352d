"""Kernels of a cubin as rows: resources, instructions with control field, live registers and source lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from heddle.isa.cubin.cubin import Cubin, Function
from heddle.isa.cubin.flow import EXACT, flow_of, raw_instructions
from heddle.isa.cubin.lines import line_of_instructions
from heddle.isa.cubin.resources import resources
from heddle.isa.cubin.shift import used_instructions
from heddle.isa.listing import control_text, line_of
from heddle.isa.liveness import count_of, live_sets
from heddle.isa.words import WORD_BYTES, to_ints


def kernel_row(cubin: Cubin, kernel: Function) -> dict[str, Any]:
    """Return a kernel, with the functions in its section, as data: one row an instruction, NOPs at the end left out.

    `raw` counts the instructions that the opcode table does not know. They are taken to read every register, so that
    `live` is then the most there can be.
    """
    decoded, flow = flow_of(cubin, kernel.section, EXACT)
    live = [count_of(one) for one in live_sets(flow, EXACT)]
    count = used_instructions(decoded.words)
    lines = line_of_instructions(cubin, kernel.section, count)
    rows = []
    for index, word in enumerate(to_ints(decoded.words[:count])):
        line, offset = lines[index], index * WORD_BYTES
        text = line_of(word, decoded.table, decoded.layout, offset)
        rows.append({
            "offset": offset,
            "word": f"{word:032x}",
            "control": control_text(word),
            "live": live[index],
            "text": text.removeprefix(control_text(word)).removesuffix(";").strip(),
            "line": f"{line.file}:{line.line}" if line else "",
        })  # fmt: skip
    return {
        "kernel": kernel.name,
        "resources": asdict(resources(cubin, kernel)),
        "raw": int((raw_instructions(decoded) < count).sum()),
        "instructions": rows,
    }
