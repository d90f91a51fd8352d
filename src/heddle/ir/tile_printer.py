"""Print a tile program as text.

One declaration or operation a line, bodies in braces, fields at their default left out. `heddle.ir.tile_parser` reads
it back. `where=0:57` is line 57 of the first `file`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from heddle.errors import SourceLocation
from heddle.ir import tile
from heddle.ir.warp_printer import default_of, head_and_fields, literal_text, name_text, value_text
from heddle.ir.work_text import work_lines

DECLARATIONS = {  # keyword -> field of TileProgram, in printed order
    "tensor": "tensors",
    "shared": "shared",
    "registers": "registers",
    "pool": "pool",
    "tensor_memory": "tensor_memory",
    "barrier": "barriers",
    "ring": "rings",
}
BODIES: tuple[type[tile.Op], ...] = (
    tile.For,
    tile.ForEachItem,
    tile.When,
    tile.Fibers,
    tile.OtherFibers,
)
"""Operations with a body."""
HEADER_SKIP = {"name", "roles", "work", "params", *DECLARATIONS.values()}
INDENT = "  "
TENSOR_MEMORY = "tensor_memory"
"""Stands before an A operand in tensor memory: a shared box looks the same."""
POOL = "pool"
"""Stands before a B operand in the pool: a shared box looks the same."""
GLOBAL = "global"
"""Stands before a codebook in global memory: a shared box looks the same."""
OWN = "registers"
"""Stands before a B operand in the role's own registers."""
OPERATIONS: tuple[type[tile.Op], ...] = tuple(
    kind for kind in vars(tile).values() if isinstance(kind, type) and issubclass(kind, tile.Op) and kind is not tile.Op
)
"""All operations, in the order of their definition."""


def operation_name(kind: type[tile.Op]) -> str:
    """Return the keyword of an operation: TmaLoad is tma_load."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def print_program(program: tile.TileProgram) -> str:
    """Return the text of `program`; `parse_program` of it gives an equal program."""
    files = _Files()
    roles = [line for role in program.roles for line in _role(role, files)]
    lines = [" ".join(["tile_program", name_text(program.name), *_fields(program, HEADER_SKIP, files)])]
    lines += [f"param {name_text(name)}={literal_text(value)}" for name, value in program.params.items()]
    lines += [f"file {json.dumps(name, ensure_ascii=False)}" for name in files.names]
    for keyword, attribute in DECLARATIONS.items():
        for record in getattr(program, attribute):
            head, fields = head_and_fields(record)
            lines.append(" ".join([keyword, head, *fields]))
    return "\n".join([*lines, *work_lines(program.work, name_text), "", *roles]) + "\n"


class _Files:
    """Numbers the files that locations name, in order of appearance."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def place(self, where: SourceLocation) -> str:
        if where.file not in self.names:
            self.names.append(where.file)
        column = f":{where.column}" if where.column else ""
        return f"{self.names.index(where.file)}:{where.line}{column}"


def _role(role: tile.RoleBody, files: _Files) -> Iterator[str]:
    yield " ".join(["role", name_text(role.name), *_fields(role, {"name", "body"}, files), "{"])
    yield from _body(role.body, files, INDENT)
    yield "}"


def _body(body: tuple[tile.Op, ...], files: _Files, indent: str) -> Iterator[str]:
    for op in body:
        words = [operation_name(type(op)), *_fields(op, {"body"}, files)]
        if not isinstance(op, BODIES):
            yield indent + " ".join(words)
            continue
        yield indent + " ".join([*words, "{"])
        yield from _body(op.body, files, indent + INDENT)  # type: ignore[attr-defined]
        yield indent + "}"


def _fields(record: Any, skip: set[str], files: _Files) -> list[str]:
    """Return `name=value` or `flag` for each field that is not at its default; the location comes last."""
    fields = sorted(dataclasses.fields(record), key=lambda field: field.name == "where")
    texts = []
    for field in fields:
        value = getattr(record, field.name)
        if field.name in skip or (value == default_of(field) and type(value) is type(default_of(field))):
            continue
        place = f"{TENSOR_MEMORY} " if field.name == "a" and isinstance(value, tile.TmemRef) else ""
        place = f"{POOL} " if isinstance(value, tile.PoolRef) else place
        place = f"{GLOBAL} " if field.name == "codebook" and isinstance(value, tile.GlobalRef) else place
        place = f"{OWN} " if isinstance(value, tile.OwnRef) else place
        texts.append(field.name if value is True else f"{field.name}={place}{_value(value, files)}")
    return texts


def _value(value: Any, files: _Files) -> str:
    if isinstance(value, SourceLocation):
        return files.place(value)
    if value is False:
        return "false"
    return value_text(value)
