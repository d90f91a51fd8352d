"""Words to instructions and back, bit for bit: `decode` of whole programs as arrays, `encode` of instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from heddle.isa.assemble import word_of
from heddle.isa.disassemble import instruction_of
from heddle.isa.instruction import Instruction
from heddle.isa.layouts import layout_named
from heddle.isa.registers import Registers, register_arrays
from heddle.isa.table import load_table
from heddle.isa.words import Words, from_ints, get


class Decoded:
    """A program decoded: arrays with an entry an instruction, and `Instruction`s on demand.

    `opcode` has 13 bits; `form` is the number of the table's form, -1 for raw words. Control arrays are as in
    `instruction.Control`.
    """

    def __init__(self, words: Words, architecture: str, layout: str = "heddle") -> None:
        self.words = words
        self.table = load_table(architecture)
        self.architecture = self.table.architecture
        self.layout = layout_named(layout)
        self.opcode = (get(words, 11, 0) | get(words, 91, 91) << np.uint64(12)).astype(np.uint16)
        self.guard = get(words, 14, 12).astype(np.uint8)
        self.guard_negated = get(words, 15, 15).astype(bool)
        self.stall = get(words, 108, 105).astype(np.uint8)
        self.yields = get(words, 109, 109) == 0
        self.write_barrier = get(words, 112, 110).astype(np.uint8)
        self.read_barrier = get(words, 115, 113).astype(np.uint8)
        self.wait = get(words, 121, 116).astype(np.uint8)
        self.reuse = get(words, 125, 122).astype(np.uint8)
        self.form = self._forms()

    def _forms(self) -> NDArray[np.int32]:
        first = np.full(1 << 13, -1, np.int32)
        several = []
        for code, numbers in self.table.by_code.items():
            first[code] = numbers[0]
            if len(numbers) > 1 or self.table.forms[numbers[0]].mask:
                several.append(code)
        form = first[self.opcode]
        for code in np.intersect1d(self.opcode, several):
            places = np.flatnonzero(self.opcode == code)
            form[places] = self._variants(int(code), places)
        return form

    def _variants(self, code: int, places: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return the form of each of these words, which have an opcode of several forms."""
        words, chosen = self.words[places], np.full(len(places), -1, np.int32)
        for number in reversed(self.table.by_code[code]):
            form = self.table.forms[number]
            mask, value = from_ints([form.mask, form.value])
            chosen[((words & mask) == value).all(axis=1)] = number
        return chosen

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> Instruction:
        low, high = self.words[index].tolist()
        return instruction_of(low | high << 64, self.table, self.layout)

    def __iter__(self) -> Iterator[Instruction]:
        return (self[index] for index in range(len(self)))

    def name(self, index: int) -> str | None:
        """Return the mnemonic without modifiers, None for a raw word."""
        number = int(self.form[index])
        return None if number < 0 else self.table.forms[number].name

    @cached_property
    def registers(self) -> Registers:
        """All register fields, guards included."""
        return register_arrays(self)

    def uses(self) -> Registers:
        """Return the registers that each instruction reads."""
        return self.registers.only(self.registers.used)

    def definitions(self) -> Registers:
        """Return the registers that each instruction writes."""
        return self.registers.only(self.registers.defined)


def decode(words: Words, architecture: str, layout: str = "heddle") -> Decoded:
    """Decode words of an architecture (sm_80, sm_90, sm_100); any word can be decoded. Raises UserError for names."""
    return Decoded(words, architecture, layout)


def encode(instructions: Iterable[Instruction], architecture: str, layout: str = "heddle") -> Words:
    """Return the words of instructions: those they were decoded from, bit for bit. Raises UserError."""
    table, names = load_table(architecture), layout_named(layout)
    return from_ints(word_of(instruction, table, names) for instruction in instructions)
