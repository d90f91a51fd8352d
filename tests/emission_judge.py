"""What NVIDIA's disassembler says of words of compiled kernels, against the texts of their forms."""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from heddle.isa.emission.form import SLOT_BITS, Form, forms_of
from heddle.isa.emission.places import REUSE_BITS
from heddle.isa.layouts import FIBER_MASK
from heddle.isa.nvidia import run_program
from heddle.isa.words import from_ints, get_bits, put_bits, to_bytes

TARGETS = {"sm_80": "SM80", "sm_90": "SM90a", "sm_100": "SM100a"}
FIBER_CODES = (0x9F8, 0x9F9, 0x9FA)
DISPLACEMENTS = ("target", "meeting", "next")
DECIMAL = ("n", "level")
RAW = {"commits": 7, "target": 4, "meeting": 4}
"""Bits of fields in samples, where 1 has no meaning."""
BATCH = 4000
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")


def is_base(form: Form) -> bool:
    """Tell whether an instruction is one of today's: NVIDIA's disassembler knows it once the 13 bits are cleared."""
    return not form.own_fiber_bits and form.code not in FIBER_CODES


def listed(words: list[int], architecture: str) -> list[str]:
    """Return nvdisasm's text of each word with its FIBER bits cleared. Raises UserError if it refuses one."""
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(words), BATCH):
            part = [word & ~FIBER_MASK for word in words[start : start + BATCH]]
            path = Path(folder) / "words.bin"
            path.write_bytes(to_bytes(from_ints(part)))
            said = run_program("nvdisasm", ["-b", TARGETS[architecture], "-hex", "-ndf", "-novliw", path])
            texts += [match[2] for match in _LINE.finditer(said)]
    assert len(texts) == len(words)
    return texts


def expected(word: int, form: Form) -> str:
    """Return the form's text with the registers and values of a word; displacements stay `{target}`."""
    text = form.text
    for slot, (high, low) in SLOT_BITS.items():
        index = get_bits(word, high, low)
        reuse = ".reuse" if slot in REUSE_BITS and word >> REUSE_BITS[slot] & 1 else ""
        text = text.replace(f"{{{slot}}}", ("RZ" if index == 255 else f"R{index}") + reuse)
    for name, field in form.fields.items():
        raw = field.raw(word)
        if name in DISPLACEMENTS:
            continue
        value = str(field.get(word)) if name in DECIMAL else f"0x{raw:x}"
        if name == "columns" and not raw:
            value = "URZ"
        if name == "commits":
            value = "" if raw else ", gsb0"
        text = text.replace(f"{{{name}}}", value)
    guard = get_bits(word, 14, 12)
    return text if guard == 7 else f"@P{guard} {text}"


def differences(words: Iterable[int], architecture: str) -> list[str]:
    """Return which words have no form, and where nvdisasm's text of a base instruction is not the text of its form."""
    table = forms_of(architecture)
    forms = {word: table.find(word) for word in words}
    found = [f"{word:#034x}: no form" for word, form in forms.items() if form is None]
    base = {word: form for word, form in forms.items() if form is not None and is_base(form)}
    for (word, form), said in zip(base.items(), listed(list(base), architecture), strict=True):
        if not agree(said, expected(word, form)):
            found.append(f"{word:#034x}: {said} instead of {expected(word, form)}")
    return found


def agree(said: str, wanted: str) -> bool:
    """Compare texts but for the place that a branch leads to."""
    if any(f"{{{name}}}" in wanted for name in DISPLACEMENTS):
        said = re.sub(r"-?0x[0-9a-f]+$", "", said)
        wanted = re.sub(r"\{\w+\}$", "", wanted)
    return _plain(said) == _plain(wanted)


def sample(form: Form) -> int:
    """Return a word of a form with registers that tell its slots apart and the control field of an idle NOP."""
    word = form.word | 7 << 12 | (1 | 1 << 4 | 7 << 5 | 7 << 8) << 105
    slots = {slot.field for slot in (form.dst, *form.src, form.accumulator) if slot is not None and slot.field}
    for number, slot in enumerate(sorted(slots)):
        word = put_bits(word, *SLOT_BITS[slot], 16 * (number + 2))
    for name, field in form.fields.items():
        word = field.put_raw(word, RAW.get(name, 1))
    return word


def _plain(text: str) -> str:
    """Leave out blanks; guards of the uniform datapath are written as those of others."""
    return re.sub(r"\s+", "", text).replace("@UP", "@P")
