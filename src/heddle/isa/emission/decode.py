"""Words and a note as a warp program again: the inverse of `encode`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heddle.errors import UserError
from heddle.ir.warp import Instruction, WarpProgram
from heddle.isa.emission import control, fiber, flow, places
from heddle.isa.emission.choose import CLUSTER
from heddle.isa.emission.encode import BIND, BIT, PLAIN_FIELDS, row_windows
from heddle.isa.emission.form import Form, forms_of
from heddle.isa.emission.operands import get_operands
from heddle.isa.words import Words, to_ints

FLAGS = ("all_scope", "group")
STANDS_IN_ROW = ("form", "dtype", "bytes", "ctas")


def words_rows(words: Words, head: WarpProgram, layout: str = "heddle") -> tuple[Instruction, ...]:
    """Return the rows of words of a program whose declarations are those of `head`; what only a note says is missing.

    Raises UserError for a word that is no instruction of a warp program.
    """
    table = forms_of(head.architecture)
    values = to_ints(words)
    forms: list[Form] = []
    for pc, word in enumerate(values):
        form = table.find(word)
        if form is None:
            raise UserError(f"instruction {pc}: the word {word:#034x} is none that a warp program is made of")
        forms.append(form)
    skeleton = replace(head, instructions=_skeleton(values, forms))
    windows = row_windows(skeleton, layout)
    rows = []
    for pc, row in enumerate(skeleton.instructions):
        try:
            rows.append(_row(row, values, forms, pc, windows[pc], head))
        except UserError as error:
            raise UserError(f"instruction {pc} ({row.op}): {error.message}", hint=error.hint) from None
    return tuple(rows)


def _skeleton(words: Sequence[int], forms: Sequence[Form]) -> tuple[Instruction, ...]:
    """Return rows with opcode and target: what the flow of control needs."""
    meet = flow.meeting_targets(words, forms)
    rows = []
    for pc, (word, form) in enumerate(zip(words, forms, strict=True)):
        field = form.fields.get("target")
        target = meet.get(pc) if field is None else flow.get_target(word, field, pc)
        if target is not None and not 0 <= target < len(words):
            raise UserError(f"instruction {pc} ({form.op}) branches to {target}, outside of the program")
        rows.append(Instruction(op=form.op, target=target))
    return tuple(rows)


def _row(
    row: Instruction, words: Sequence[int], forms: Sequence[Form], pc: int, window: places.Window, head: WarpProgram
) -> Instruction:
    word, form = words[pc], forms[pc]
    found: dict[str, Any] = {"control": control.get_control(word), "by": control.get_guard(word)}
    if form.op == BIT:
        return Instruction(op=row.op, **found, **fiber.get_bit(word, form, window))
    if form.op == BIND:
        if pc + 1 == len(words):
            raise UserError("a BIND is the last instruction")
        return Instruction(op=row.op, **found, bind=fiber.get_bind(word, form, forms[pc + 1]))
    columns = form.fields["n"].get(word) if "n" in form.fields else 0
    found |= get_operands(word, form, columns, window)
    found |= {name: form.fields[name].get(word) for name in PLAIN_FIELDS if name in form.fields}
    found |= {name: bool(found[name]) for name in FLAGS if name in found}
    found |= {name: form.row[name] for name in STANDS_IN_ROW if name in form.row}
    if form.row.get("ctas") == CLUSTER:
        found["ctas"] = head.cluster_size
    if "shape" in form.row:
        found["shape"] = tuple(columns if size == "n" else size for size in form.row["shape"])
    return Instruction(op=row.op, target=row.target, **found)
