"""Do compiled kernels survive as instruction words and a note, and do the words alone say what they must?"""

from dataclasses import fields, replace

import pytest

from emission_programs import by_hand, compiled
from heddle.errors import UnsupportedError, UserError
from heddle.ir.warp import Control, Instruction, Register, WarpProgram
from heddle.isa.emission.form import ARCHITECTURES, SLOT_BITS, forms_of
from heddle.isa.emission.note import NOTED, program_of, words_and_note
from heddle.isa.words import from_ints, put_bits, to_ints

KERNELS = (
    ("rmsnorm", "a100", "simt"),
    ("rmsnorm", "h100", "cuda-native"),
    ("rmsnorm", "b200", "fiber"),
    ("gemm", "b200", "simt"),
    ("rope", "a100", "fiber"),
)
PLAIN = "[B------:R-:W-:S01]"


def again(program: WarpProgram) -> WarpProgram:
    """Return the program that words and note of a program give."""
    return program_of(*words_and_note(program))


def changed(program: WarpProgram, pc: int, high: int, low: int, value: int) -> Instruction:
    """Return the row that comes back when bits of its word have another value."""
    words, note = words_and_note(program)
    values = to_ints(words)
    values[pc] = put_bits(values[pc], high, low, value)
    return program_of(from_ints(values), note).instructions[pc]


@pytest.mark.parametrize(("kernel", "gpu", "mode"), KERNELS)
def test_a_compiled_kernel_comes_back(kernel: str, gpu: str, mode: str) -> None:
    program = compiled(kernel, gpu, mode)
    assert again(program) == program


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_form_is_told_from_the_others(architecture: str) -> None:
    table = forms_of(architecture)
    for form in (form for group in table.by_op.values() for form in group):
        word = form.word
        for slot, (high, low) in SLOT_BITS.items():
            if any(s is not None and s.field == slot for s in (form.dst, *form.src, form.accumulator)):
                word = put_bits(word, high, low, 8)
        assert table.find(word) is form


def test_the_note_names_no_registers_and_no_control() -> None:
    said_by_words = {"dst", "src", "control", "target", "level", "by", "bind", "bit", "set_bit", "fibers", "group"}
    assert said_by_words | {"all_scope", "barrier_id", "form", "ctas"} == {f.name for f in fields(Instruction)} - NOTED


def test_words_say_the_destination() -> None:
    program = by_hand(f"{PLAIN} FADD R8 = R4, R5")
    assert changed(program, 0, 23, 16, 9).dst == Register(9)


def test_words_say_the_sources() -> None:
    program = by_hand(f"{PLAIN} FFMA R8 = R4, R5, R6")
    assert changed(program, 0, 71, 64, 7).src == (Register(4), Register(5), Register(7))


def test_words_say_the_stall_count() -> None:
    assert changed(by_hand(f"{PLAIN} FADD R8 = R4, R5"), 0, 108, 105, 6).control == Control(stall=6)


def test_words_say_the_counters() -> None:
    program = by_hand("[B0-2---:R1:W3:S02] FADD R8 = R4, R5")
    assert changed(program, 0, 121, 116, 0b100000).control.wait == frozenset({5})


def test_words_say_where_a_loop_begins() -> None:
    program = by_hand(f"{PLAIN} FADD R8 = R4, R5\n{PLAIN} FADD R8 = R4, R5\n{PLAIN} LOOP count=many level=2 -> start")
    assert again(program) == program
    assert changed(program, 2, 23, 16, 0xFC).target == 2  # one instruction back: -4 units


def test_the_operand_cache_bit_comes_back() -> None:
    program = by_hand(f"{PLAIN} FADD R8 = R4.reuse, R5\n{PLAIN} FADD R9 = R4, R5.reuse")
    assert again(program) == program


@pytest.mark.parametrize(
    "row", ["S01] FADD R8 = R4, R5.reuse", "S12] FFMA R8 = R4.reuse, R5, R6", "S02] MUFU R8 = R4.reuse"]
)
def test_operand_cache_bits_that_no_word_has_are_in_the_note(row: str) -> None:
    program = by_hand(f"[B------:R-:W-:{row}")
    words, note = words_and_note(program)
    assert to_ints(words)[0] >> 122 & 0b111 == 0
    assert "reuse=" in note
    assert program_of(words, note) == program


def test_who_acts_is_a_guard() -> None:
    program = by_hand(f"{PLAIN} NOP by=role\n{PLAIN} NOP by=group")
    assert changed(program, 0, 15, 12, 7).by == "warp"
    assert again(program) == program


def test_parted_fibers_meet_where_bssy_says() -> None:
    code = f"""{PLAIN} BSSY
    {PLAIN} BRA.P count=16 -> other
    {PLAIN} FADD R8 = R4, R5
    {PLAIN} BSYNC -> end
other:
    {PLAIN} FADD R8 = R4, R6
    {PLAIN} BSYNC -> end
end:"""
    program = by_hand(code)
    assert again(program) == program
    assert changed(program, 3, 81, 34, 0).target == 6


def test_bsyncs_that_disagree_are_refused() -> None:
    code = f"{PLAIN} BSSY\n{PLAIN} BSYNC -> one\none:\n{PLAIN} NOP\n{PLAIN} BSYNC -> two\ntwo:\n"
    with pytest.raises(UserError, match="BSYNC at 3"):
        words_and_note(by_hand(code))


def test_pool_registers_and_private_ones_share_an_instruction() -> None:
    program = by_hand(f"{PLAIN} FADD R8 = R290@3, R5\n{PLAIN} FFMA R40@own = R7, R33@own, R8", "fiber")
    assert again(program) == program


def test_a_role_of_the_upper_window_writes_the_upper_half_of_the_pool() -> None:
    program = by_hand(f"{PLAIN} FADD R290@own = R50, R60@own", "fiber")
    program = replace(program, roles=tuple(replace(role, base=256) for role in program.roles))
    assert again(program) == program
    word = to_ints(words_and_note(program)[0])[0]
    assert (word >> 16 & 0xFF, word >> 24 & 0xFF, word >> 94 & 1) == (290 - 256, (256 + 50) & 0xFF, 1)


def test_remote_sources_are_in_the_thirteen_bits() -> None:
    program = by_hand(f"{PLAIN} FADD R8 = R290@3, R5", "fiber")
    assert changed(program, 0, 93, 92, 1).src[0] == Register(290, place=1)


def test_a_bind_names_slots_of_its_partner() -> None:
    code = f"{PLAIN} DEPBAR.BIND bind=[1](hold)\n{PLAIN} FFMA R40@own = R7, R33@own"
    program = by_hand(code, "fiber")
    assert again(program) == program
    assert to_ints(words_and_note(program)[0])[0] >> 92 & 0xF == 0b100  # slot C: B holds the immediate


def test_a_busy_bit_of_a_group_comes_back() -> None:
    program = by_hand(f"{PLAIN} DEPBAR.BIT R64@own:8 bit=full set_bit\n{PLAIN} DEPBAR.BIT R290@2 bit=empty", "fiber")
    assert again(program) == program


def test_a_private_register_in_the_pool_is_refused() -> None:
    with pytest.raises(UserError, match="words cannot tell"):
        words_and_note(by_hand(f"{PLAIN} FADD R40 = R290@3, R5", "fiber"))


def test_an_opcode_of_another_generation_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="FADD2 R8:2 = R4:2, R6:2 has no encoding on sm_80"):
        words_and_note(by_hand(f"{PLAIN} FADD2 R8:2 = R4:2, R6:2", architecture="sm_80"))


def test_a_destination_out_of_the_window_is_refused() -> None:
    with pytest.raises(UserError, match="instruction 0"):
        words_and_note(by_hand(f"{PLAIN} FADD R299@own = R4, R5", "fiber"))


def test_a_word_that_no_form_describes_is_refused() -> None:
    words, note = words_and_note(by_hand(f"{PLAIN} FADD R8 = R4, R5"))
    with pytest.raises(UserError, match="instruction 0"):
        program_of(from_ints([put_bits(to_ints(words)[0], 11, 0, 0x9FF), *to_ints(words)[1:]]), note)


def test_a_note_of_another_version_is_refused() -> None:
    words, note = words_and_note(by_hand(f"{PLAIN} NOP"))
    with pytest.raises(UserError, match="version 9"):
        program_of(words, note.replace("rows 1", "rows 9"))


def test_a_note_that_changes_registers_is_refused() -> None:
    words, note = words_and_note(by_hand(f"{PLAIN} NOP"))
    with pytest.raises(UserError, match="unknown field 'dst'"):
        program_of(words, note + "0 dst=R4\n")


def test_a_program_without_rows_has_no_words() -> None:
    program = replace(by_hand(f"{PLAIN} NOP"), instructions=(), roles=())
    assert again(program) == program
