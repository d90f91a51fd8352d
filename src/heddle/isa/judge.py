"""NVIDIA's nvdisasm as judge: what it prints for raw instruction words.

It is part of the extra `sass`. It refuses a whole file for one word that it does not know; such words are found by its
error messages, by halving where a message names no address, and replaced by NOP, so that addresses stay. Some illegal
words it leaves out of its output without a message.
"""

from __future__ import annotations

import re
import subprocess
import tempfile

import numpy as np

from heddle.isa.nvidia import program as program_path
from heddle.isa.table import check_architecture
from heddle.isa.words import WORD_BYTES, Words, to_bytes

BATCH_WORDS = 8000
TIMEOUT_S = 120
NOP = (0x0000000000007918, 0x000FC00000000000)
_NAMES = {"sm_80": "SM80", "sm_90": "SM90a", "sm_100": "SM100a"}
_ADDRESS = re.compile(r"at address 0x([0-9a-f]+)")
_BLANKS = re.compile(r" +(?=[,; ])")
"""Blanks that nvdisasm puts behind some floats, such as `+INF , PT`, and after some mnemonics."""
_LINE = re.compile(r"^[ \t]*/\*([0-9a-f]{4,})\*/[ \t]*(.*?)[ \t]*;?[ \t]*$", re.MULTILINE)


def texts_of(words: Words, architecture: str) -> list[str | None]:
    """Return nvdisasm's text of each word, without `;` and doubled blanks; None where it refuses the word.

    The word at index i of each 8,000 stands at address 16 * (i mod 8,000), which decides what branch targets it prints.
    """
    name = _NAMES[check_architecture(architecture)]
    program = str(program_path("nvdisasm"))
    found: list[str | None] = []
    for start in range(0, len(words), BATCH_WORDS):
        found += _batch(program, name, words[start : start + BATCH_WORDS])
    return found


def _batch(program: str, name: str, words: Words, address: int = 0) -> list[str | None]:
    """Return the texts of one batch: run, take out what is refused, run again until the rest passes."""
    legal = np.ones(len(words), bool)
    while True:
        texts, refused = _run(program, name, np.where(legal[:, None], words, np.array(NOP, np.uint64)), address)
        if texts is not None:
            return [text if good else None for text, good in zip(texts, legal, strict=True)]
        if refused:
            legal[refused] = False
            continue
        if len(words) == 1:
            return [None]
        half = len(words) // 2
        parts = np.where(legal[:, None], words, np.array(NOP, np.uint64))
        texts = _batch(program, name, parts[:half], address)
        texts += _batch(program, name, parts[half:], address + half * WORD_BYTES)
        return [text if good else None for text, good in zip(texts, legal, strict=True)]


def _run(program: str, name: str, words: Words, start: int) -> tuple[list[str | None] | None, list[int]]:
    """Return the texts, or None and the indices of the words named in the errors."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(to_bytes(words))
        file.flush()
        done = subprocess.run(
            [program, "-b", name, "-base", hex(start), "-ndf", "-novliw", file.name],
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    lines = _LINE.findall(done.stdout)
    if done.returncode == 0:
        texts: list[str | None] = [None] * len(words)
        for address, text in lines:
            texts[(int(address, 16) - start) // WORD_BYTES] = _BLANKS.sub("", text)
        return texts, []
    refused = {(int(address, 16) - start) // WORD_BYTES for address in _ADDRESS.findall(done.stderr)}
    return None, sorted(index for index in refused if 0 <= index < len(words))
