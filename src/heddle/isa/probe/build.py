"""From learned opcodes to a table file: roles and widths of registers, usual values of unshown bits, text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from heddle.errors import UserError
from heddle.isa.judge import texts_of
from heddle.isa.probe.branches import BRANCHES, set_branch_roles
from heddle.isa.probe.liveness import marks_of
from heddle.isa.probe.opcode import Opcode
from heddle.isa.probe.toml import table_text
from heddle.isa.probe.widths import probes, roles_from, spread
from heddle.isa.probe.write import Learned, Model, rest_of, row_of
from heddle.isa.words import from_ints

HEADING = """Instruction forms of {architecture}, measured by `python -m heddle.isa.probe`.
Forms with an `origin` were not: they come from the architecture named there, or were "edited" by hand after probing.
All are judged against nvdisasm in the tests. docs/reference/instruction_set.md describes the format."""


def build(
    opcodes: Iterable[Opcode], architecture: str, report: Callable[[str], None], kept: Iterable[dict[str, Any]] = ()
) -> str:
    """Return the text of the table file of an architecture; `kept` are entries of other opcodes."""
    notes: list[str] = []
    forms: list[tuple[Opcode, Learned, Model]] = []
    for opcode in sorted(opcodes, key=lambda opcode: opcode.code):
        for learned in reachable(opcode.learned):
            try:
                forms.append((opcode, learned, row_of(learned, notes)))
            except (UserError, KeyError) as problem:
                report(f"0x{opcode.code:x}: left out: {problem}")
    _roles([(learned, model) for _, learned, model in forms], architecture, report)
    rows = []
    for opcode, learned, _ in forms:
        model = row_of(learned, notes)
        words = [word for word in opcode.samples if word & model.form.mask == model.form.value]
        rest = rest_of(model.form, words)
        row = dict(model.row)
        if rest:
            row = {key: value for key, value in row.items() if key not in ("fields", "choices")}
            row |= {"rest": f"{rest:x}", "fields": model.row["fields"], "choices": model.row["choices"]}
        rows.append(row)
    for note in dict.fromkeys(notes):
        report(note)
    set_branch_roles(rows, architecture)
    rows = sorted([*rows, *kept], key=lambda row: row["code"])
    return table_text(rows, HEADING.format(architecture=architecture))


def reachable(forms: list[Learned]) -> list[Learned]:
    """Return the forms that are not hidden by an earlier one, since the first form that fits a word describes it."""
    found: list[Learned] = []
    for form in forms:
        if not any(one.mask & form.mask == one.mask and form.value & one.mask == one.value for one in found):
            found.append(form)
    return found


def _roles(forms: list[tuple[Learned, Model]], architecture: str, report: Callable[[str], None]) -> None:
    """Set the roles of all forms that do not branch."""
    straight = [(learned, model) for learned, model in forms if model.form.name not in BRANCHES]
    spreads = [spread(learned.base, model.form.fields) for learned, model in straight]
    legal_bases = texts_of(from_ints(spreads), architecture)
    bases = [
        apart if text is not None else learned.base
        for (learned, _), apart, text in zip(straight, spreads, legal_bases, strict=True)
    ]
    asked = [probes(base, model) for base, (_, model) in zip(bases, straight, strict=True)]
    texts = iter(texts_of(from_ints(word for words in asked for word in words), architecture))
    asked = [[word for word in words if next(texts) is not None] for words in asked]
    everything = [word for words in asked for word in words]
    report(f"{architecture}: life ranges of {len(everything)} words")
    marks = marks_of(everything, architecture)
    at = 0
    pending: list[tuple[Learned, Model, list[int], list[dict[tuple[str, int], str]]]] = []
    for (learned, model), words in zip(straight, asked, strict=True):
        pending.append((learned, model, words, marks[at : at + len(words)]))
        at += len(words)
    wanted: dict[int, None] = {}

    def note(words: list[int]) -> list[dict[tuple[str, int], str]]:
        wanted.update(dict.fromkeys(words))
        return [{} for _ in words]

    for _, model, words, found in pending:
        roles_from(model, words, found, note)
    report(f"{architecture}: life ranges of {len(wanted)} more words")
    judged = texts_of(from_ints(wanted), architecture)
    legal = [word for word, text in zip(wanted, judged, strict=True) if text is not None]
    known: dict[int, Any] = {word: {} for word in wanted} | dict(zip(legal, marks_of(legal, architecture), strict=True))
    for learned, model, words, found in pending:
        learned.roles = roles_from(model, words, found, lambda more: [known[word] for word in more])
