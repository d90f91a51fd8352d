"""Print a warp program as text.

One declaration or instruction a line; fields at their default are left out. `heddle.ir.warp_parser` reads it back.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from heddle.errors import UserError
from heddle.ir.warp import RZ, SCOREBOARDS, Control, Count, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import OWN, TENSOR
from heddle.ir.work_text import work_lines

DECLARATIONS = {  # keyword -> field of WarpProgram, in printed order
    "role": "roles",
    "ring": "rings",
    "barrier": "barriers",
    "tensor": "tensors",
    "stream": "streams",
    "object": "objects",
    "source": "sources",
    "effect": "effects",
}
INSTRUCTION_SYNTAX = {"op", "dst", "src", "control", "shape", "target"}  # fields with a syntax of their own
NAME = re.compile(r"[A-Za-z_][\w.]*")
REGISTER = re.compile(r"(?:R(\d+)|RZ)(?:@(\d|own|tm))?(?::(\d+))?(\.reuse)?")


def print_program(program: WarpProgram) -> str:
    """Return the text of `program`; `parse_program` of it gives an equal program.

    Raises UserError if a control field holds a dependence counter that no machine has.
    """
    return (
        "\n".join(
            [*_header(program), *work_lines(program.work, name_text), *_declarations(program), "", *_code(program)]
        )
        + "\n"
    )


def label(pc: int) -> str:
    """Return the label in front of the instruction at `pc`."""
    return f"L{pc}"


def name_text(name: str) -> str:
    """Return `name` bare if the parser reads it as one word, else quoted."""
    bare = NAME.fullmatch(name) and not REGISTER.fullmatch(name) and name != "inf"  # inf reads as a number
    return name if bare else json.dumps(name, ensure_ascii=False)


def register_text(register: Register) -> str:
    """Return R4, R4:2 for a group, RZ for zero, with .reuse if the operand cache bit is set.

    R4@2 lies in subpartition 2, R4@own in the weft's own; R4@tm is tensor memory.
    """
    zero = register.index == RZ and register.count == 1 and register.place is None
    name = "RZ" if zero else f"R{register.index}"
    names = {None: "", OWN: "@own", TENSOR: "@tm"}
    place = names.get(register.place, f"@{register.place}")
    group = f":{register.count}" if register.count != 1 else ""
    return name + place + group + (".reuse" if register.reuse else "")


def control_text(control: Control) -> str:
    """Return the control field, for example [B0-2---:R-:W1:S04]: wait mask, read and write barrier, stall cycles."""
    if not control.wait <= set(range(SCOREBOARDS)):
        raise UserError(f"dependence counters {sorted(control.wait)}; allowed: 0 to {SCOREBOARDS - 1}")
    mask = "".join(str(k) if k in control.wait else "-" for k in range(SCOREBOARDS))
    barriers = ["-" if k is None else str(k) for k in (control.read_barrier, control.write_barrier)]
    return f"[B{mask}:R{barriers[0]}:W{barriers[1]}:S{control.stall:02d}]"


def count_text(count: Count) -> str:
    """Return 7, k_tiles, k_tiles+1 or k_tiles-1; other combinations are spelled out."""
    if count.attribute is None and count.offset == 0:
        return str(count.value)
    if count.attribute is not None and count.value == 0:
        return name_text(count.attribute) + (f"{count.offset:+d}" if count.offset else "")
    return "(" + ", ".join(field_texts(count)) + ")"


def value_text(value: Any) -> str:
    """Return a field's value: number, name, list, table, or a record as head(field=value, ...)."""
    if isinstance(value, Count):
        return count_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        head, rest = head_and_fields(value)
        return head + (f"({', '.join(rest)})" if rest else "")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name_text(key)}={literal_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    return name_text(value) if isinstance(value, str) else literal_text(value)


def literal_text(value: int | float | str) -> str:
    """Return a parameter: strings always quoted, so that they differ from numbers such as inf."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(int(value)) if isinstance(value, int) else repr(float(value))


def head_and_fields(record: Any) -> tuple[str, list[str]]:
    """Return the text of a record's first field and of its other fields that are not at their default."""
    first = dataclasses.fields(record)[0].name
    return value_text(getattr(record, first)), field_texts(record, skip={first})


def field_texts(record: Any, skip: set[str] | frozenset[str] = frozenset()) -> list[str]:
    """Return `name=value` (or `name` for a flag that is set) of each field that is not at its default."""
    texts = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name in skip or value == default_of(field):
            continue
        texts.append(field.name if value is True else f"{field.name}={value_text(value)}")
    return texts


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return a dataclass field's default; MISSING if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _header(program: WarpProgram) -> list[str]:
    skip = {"name", "instructions", "work", "params", *DECLARATIONS.values()}
    lines = [" ".join(["warp_program", name_text(program.name), *field_texts(program, skip)])]
    return lines + [f"param {name_text(key)}={literal_text(value)}" for key, value in program.params.items()]


def _declarations(program: WarpProgram) -> Iterator[str]:
    for keyword, attribute in DECLARATIONS.items():
        for index, record in enumerate(getattr(program, attribute)):
            head, fields = head_and_fields(record)
            if keyword == "role":
                entry = _target(program, record.entry)
                fields = [f"entry={entry}" if text.startswith("entry=") else text for text in fields]
            number = f"  // {index}" if keyword in ("source", "effect") else ""  # instructions refer to these by index
            yield " ".join([keyword, head, *fields]) + number


def _code(program: WarpProgram) -> Iterator[str]:
    targets = {instruction.target for instruction in program.instructions} | {role.entry for role in program.roles}
    yield "code"
    for pc, instruction in enumerate(program.instructions):
        if pc in targets:
            yield f"{label(pc)}:"
        branch = [] if instruction.target is None else [f"-> {_target(program, instruction.target)}"]
        yield " ".join([" ", *_instruction(instruction), *branch]) + _comment(program, instruction)


def _target(program: WarpProgram, pc: int) -> str:
    """Return the label of `pc`, or the bare number where no instruction is, so that ill-formed programs print too."""
    return label(pc) if 0 <= pc < len(program.instructions) else str(pc)


def _instruction(instruction: Instruction) -> list[str]:
    operands = ", ".join(register_text(register) for register in instruction.src)
    if instruction.dst is not None:
        operands = f"{register_text(instruction.dst)} = {operands}".rstrip()
    parts = [control_text(instruction.control), name_text(instruction.op), operands]
    if instruction.shape is not None:
        parts.append("m{}n{}k{}".format(*instruction.shape))
    parts += field_texts(instruction, INSTRUCTION_SYNTAX)
    return [part for part in parts if part]


def _comment(program: WarpProgram, instruction: Instruction) -> str:
    if instruction.source >= len(program.sources):
        return ""
    source = program.sources[instruction.source]
    return "  // " + " ".join(f"{source.file}:{source.line} {source.operation}".split())
