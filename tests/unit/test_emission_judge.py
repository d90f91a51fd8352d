"""Does NVIDIA's disassembler read the words of compiled kernels as the instructions that they are meant to be?"""

from collections.abc import Iterator
from itertools import combinations

import pytest

from emission_judge import agree, differences, expected, is_base, sample
from emission_programs import by_hand, compiled, every_kernel
from heddle.errors import UserError
from heddle.ir.warp import Control
from heddle.isa.emission.control import put_control
from heddle.isa.emission.encode import program_words
from heddle.isa.emission.form import ARCHITECTURES, CONTROL_MASK, Form, forms_of
from heddle.isa.emission.note import program_of, words_and_note
from heddle.isa.emission.places import REUSE_BITS
from heddle.isa.nvidia import program as nvidia_program
from heddle.isa.words import put_bits, to_ints


@pytest.fixture(autouse=True)
def judge_is_there() -> None:
    try:
        nvidia_program("nvdisasm")
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_form_prints_as_its_text(architecture: str) -> None:
    forms = {form for group in forms_of(architecture).by_op.values() for form in group if is_base(form)}
    assert differences(map(sample, forms), architecture) == []


def test_a_kernel_prints_as_its_forms() -> None:
    assert differences(to_ints(program_words(compiled("rmsnorm", "b200", "fiber"))), "sm_100") == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_operand_cache_bit_prints_where_it_is(architecture: str) -> None:
    words = [word for group in forms_of(architecture).by_op.values() for form in group for word in reusing(form)]
    assert len(words) > 200
    assert differences(words, architecture) == []


def reusing(form: Form) -> Iterator[int]:
    """Yield words of a form with every set of operand cache bits that it takes, at the least and the largest stall."""
    for stall in (1, 11):
        for size in range(1, len(form.cached) + 1):
            for reused in combinations(form.cached, size):
                word = sample(form) & ~CONTROL_MASK | sum(1 << REUSE_BITS[slot] for slot in reused)
                yield put_control(word, Control(stall=stall))


def test_a_wrong_bit_is_found() -> None:
    words = to_ints(program_words(by_hand("[B------:R-:W-:S01] FFMA R8 = R4, R5, R6")))
    assert len(differences([put_bits(words[0], 74, 74, 1)], "sm_90")) == 1


@pytest.mark.parametrize("said", ["FFMA R8, R4, R5, -R6", "FFMA.FTZ R8, R4, R5, R6", "FFMA R8, R5, R4, R6"])
def test_another_text_is_found(said: str) -> None:
    (word, _) = to_ints(program_words(by_hand("[B------:R-:W-:S01] FFMA R8 = R4, R5, R6")))
    form = forms_of("sm_90").find(word)
    assert form is not None
    assert agree("FFMA R8, R4, R5, R6", expected(word, form))
    assert not agree(said, expected(word, form))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["", "bf16", "fp8_e4m3"])
def test_all_kernels_come_back_and_print_as_their_forms(dtype: str) -> None:
    words: dict[str, set[int]] = {architecture: set() for architecture in ARCHITECTURES}
    kernels = 0
    for kernel, gpu, mode, program in every_kernel(dtype):
        encoded, note = words_and_note(program)
        assert program_of(encoded, note) == program, f"{kernel} on {gpu} in mode {mode}"
        words[program.architecture] |= set(to_ints(encoded))
        kernels += 1
    assert kernels >= (6 if dtype == "fp8_e4m3" else 60)
    assert [found for architecture in words for found in differences(words[architecture], architecture)] == []
