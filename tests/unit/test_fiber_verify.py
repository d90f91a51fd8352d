"""Does the verifier accept a good FIBER program and name every rule of it that a bad one breaks?"""

from __future__ import annotations

import dataclasses

import pytest

from heddle.errors import UserError
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import problems, verify
from heddle.machine import machine

TEXT = """\
warp_program good architecture=sm_90 mode=fiber fiber=400(pool_first=16, pool_limit=300) tensor_memory_columns=0
work static grid=1 attributes=[zero]
item 0
role first first_warp=0 warps=1 entry=first registers_per_thread=1
role use first_warp=1 warps=3 entry=use registers_per_thread=1 base=256
code
first:
  [B------:R-:W-:S01] SETFIBER fibers=128 all_scope
  [B------:R-:W-:S01] DEPBAR.BIT R16:8 bit=empty set_bit
  [B------:R-:W-:S01] DEPBAR.BIND bind=[](hold, readers=[1, 2])
  [B------:R-:W-:S01] FFMA R16 = R2, R4
  [B------:R-:W-:S01] DEPBAR.BIND bind=[0, 1]
  [B------:R-:W-:S01] FFMA R17 = R18, R20@1
loop:
  [B------:R-:W-:S01] WMMA R64:32 = R24:4, R32@2:16 m16n64k16 form=rr dtype=fp16 group
  [B------:R-:W-:S01] LOOP count=2 -> loop
  [B------:R-:W-:S01] EXIT
use:
  [B------:R-:W-:S01] DEPBAR.BIND bind=[0](scoped=[0])
  [B------:R-:W-:S01] FADD R4 = R16@0
  [B------:R-:W-:S01] EXIT
"""

BAD = [
    ("mode=fiber", "mode=weft", "mode 'weft'; allowed: simt, cuda-native, fiber"),
    ("fiber=400(pool_first=16, pool_limit=300) ", "", "a program of mode fiber needs a FIBER note"),
    ("fiber=400(", "fiber=600(", "600 registers of each subpartition; allowed: 1 to 512"),
    ("pool_limit=300", "pool_limit=500", "the pool is registers 16 to 499 of a subpartition; the FIBER-thread has 400"),
    ("base=256", "base=128", "role 'use' has base 128; allowed: 0, 256"),
    ("entry=first registers_per_thread=1", "entry=first registers_per_thread=1 leader_only", "it is not leader_only"),
    ("fibers=128", "fibers=129", "SETFIBER of 129 fibers; the roles declare 4 wefts of 32"),
    ("fibers=128 ", "", "SETFIBER needs fibers, 1 or more; got 0"),
    ("fibers=128", "fibers=128 by=role", "by=role: every weft executes SETFIBER"),
    ("R16:8 bit", "R16:3 bit", "DEPBAR.BIT names 3 registers from R16; allowed: aligned groups of 1, 2, 4, 8"),
    ("R16:8 bit", "R20:8 bit", "DEPBAR.BIT names 8 registers from R20; allowed: aligned groups of 1, 2, 4, 8"),
    ("bit=empty ", "", "DEPBAR.BIT needs bit, empty or full"),
    ("R16:8 bit", "R16:8, R17 bit", "DEPBAR.BIT names one register group as its source"),
    ("R16:8 bit", "R0@tm bit", "DEPBAR.BIT cannot name tensor memory"),
    ("bind=[](hold, readers=[1, 2])", "bind=[]", "DEPBAR.BIND binds nothing; it needs consume or hold"),
    ("bind=[](hold, readers=[1, 2])", "", "DEPBAR.BIND binds nothing; it needs consume or hold"),
    ("bind=[](hold, readers", "bind=[0](readers", "readers are those of a held destination; there is no hold"),
    ("readers=[1, 2]", "readers=[1, 1]", "readers [1, 1]; allowed: different ones of 0 to 3"),
    ("readers=[1, 2]", "readers=[4]", "readers [4]; allowed: different ones of 0 to 3"),
    ("(hold, readers=[1, 2])", "(hold, scoped=[1])", "scoped is about consumed slots; there is no consume"),
    ("bind=[0, 1]", "bind=[0, 1](scoped=[0])", "scoped names slots [0]; allowed: all consumed ones, [0, 1], or [1]"),
    ("(scoped=[0])", "(scoped=[1])", "scoped names slots [1]; allowed: all consumed ones, [0]"),
    ("FFMA R16 = R2, R4", "FFMA RZ = R2, R4", "hold of the destination of FFMA, which has none"),
    ("FFMA R16 = R2, R4", "LOOP count=1 -> first", "DEPBAR.BIND in front of LOOP, which has no registers to bind"),
    ("FFMA R16 = R2, R4", "BRA", "DEPBAR.BIND in front of BRA"),
    ("FFMA R16 = R2, R4", "SETFIBER fibers=32", "DEPBAR.BIND in front of SETFIBER"),
    ("FFMA R16 = R2, R4", "BAR.SYNC warps=1", "DEPBAR.BIND in front of BAR.SYNC"),
    ("FFMA R16 = R2, R4", "DEPBAR.BIT R16 bit=full", "DEPBAR.BIND in front of DEPBAR.BIT"),
    ("FFMA R16 = R2, R4", "EXIT", "DEPBAR.BIND in front of EXIT"),
    ("bind=[0, 1]", "bind=[0, 2]", "consume of source C of FFMA, which has no register there"),
    ("bind=[0, 1]", "bind=[4]", "consume of source 4 of FFMA, which has no register there"),
    ("= R18, R20@1", "= RZ, R20@1", "consume of source A of FFMA, which has no register there"),
    ("bind=[0, 1]", "bind=[0, 0]", "a source slot is consumed twice"),
    ("= R18, R20@1", "= R18, R18@own", "a register is consumed in two source slots of FFMA"),
    ("= R18, R20@1", "= R18, R18@0", "a register is consumed in two source slots of FFMA"),
    ("R17 = R18", "R18 = R18", "FFMA consumes a register that it writes"),
    ("R17 = R18", "R18@own = R18", "FFMA consumes a register that it writes"),
    ("= R16@0", "= R16@4", "a register of subpartition 4; a source can name 0 to 3, or its own"),
    (
        "= R16@0",
        "= R16@0.reuse",
        "the operand cache bit of R16, which is not a register of the weft's own subpartition",
    ),
    ("= R16@0", "= R400@0", "register 400 of a subpartition; the FIBER-thread has 0 to 399"),
    ("= R16@0", "= R144", "register 400 of a subpartition; the FIBER-thread has 0 to 399"),
    ("= R16@0", "= R255@0", "a group of 1 registers from 255 contains register 255, which reads as zero"),
    ("= R16@0", "= R252@0:8", "a group of 8 registers from 252 contains register 255"),
    ("R18, R20@1", "R253:4, R20@1", "a group that ends at R256; a base reaches R0 to R254"),
    ("= R16@0", "= R17@0:2", "a group of 2 registers from R17; it must start at a multiple of 2"),
    ("R32@2:16", "R34@2:16", "a group of 16 registers from R34; it must start at a multiple of 4"),
    ("= R16@0", "= R0@tm", "group 0 of 32 columns of tensor memory; the FIBER-thread has 0"),
    ("FADD R4", "FADD R300@1", "a destination in subpartition 1; a weft writes in its own only"),
    ("FADD R4", "FADD R30@own", "a destination at R30 of the own subpartition; role 'use' writes R256 to R510"),
    ("m16n64k16", "m32n64k16", "needs m 16, n a multiple of 8 up to 256, and k"),
    ("m16n64k16", "m16n60k16", "needs m 16, n a multiple of 8 up to 256, and k"),
    ("form=rr", "form=rt", "form 'rt' and dtype 'fp16' of WMMA"),
    ("form=rr", "form=rs", "operand B of form rs is in shared memory; its slot must be RZ"),
    ("form=rr", "form=tr", "operand A of form tr: slot A names the wrong kind of register"),
    ("R24:4,", "R24:8,", "operand A has 8 registers; 512 bytes take 4"),
    ("R24:4,", "RZ,", "operand A of form rr needs registers in slot A"),
    ("R64:32 =", "R64:16 =", "the accumulator has 16 registers; 4096 bytes take 32"),
    ("WMMA R64", "WMMA.TM R64", "WMMA.TM needs accumulators in tensor memory as destination"),
    ("R32@2:16 m16", "R32@2:16, R96:16 m16", "the accumulator that is read (C) and the one that is written"),
    ("FADD R4 = R16@0", "HMMA R4:4 = R8:4, R12:2 m16n8k16 dtype=fp16", "a program with WMMA has no other matrix"),
]


def messages(text: str) -> list[str]:
    return [problem.text(program) for program in [parse_program(text)] for problem in problems(program)]


def test_a_good_program_is_accepted_and_survives_its_text() -> None:
    program = parse_program(TEXT)
    verify(program, machine("h100+fiber"))
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize(
    ("old", "new", "message"), [row for row in BAD if row[2]], ids=[f"{o} / {n}" for o, n, m in BAD if m]
)
def test_a_broken_rule_is_named(old: str, new: str, message: str) -> None:
    assert old in TEXT
    assert any(message in text for text in messages(TEXT.replace(old, new, 1))), messages(TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("bit=full", "bit and set_bit belong to DEPBAR.BIT, not to FADD"),
        ("fibers=32", "fibers and all_scope belong to SETFIBER, not to FADD"),
        ("group", "group belongs to WMMA and WMMA.TM, not to FADD"),
        ("bind=[0]", "bind belongs to DEPBAR.BIND, not to FADD"),
    ],
)
def test_a_field_of_another_opcode_is_named(field: str, message: str) -> None:
    assert any(message in text for text in messages(TEXT.replace("FADD R4 = R16@0", f"FADD R4 = R16@0 {field}")))


def test_a_jump_between_a_bind_and_its_partner_is_named() -> None:
    text = TEXT.replace("  [B------:R-:W-:S01] FADD", "between:\n  [B------:R-:W-:S01] FADD")
    text = text.replace("R16@0\n", "R16@0\n  [B------:R-:W-:S01] LOOP count=2 -> between\n")
    assert any("a branch to 10 jumps between DEPBAR.BIND and its partner" in message for message in messages(text))


def test_a_remote_source_that_is_the_own_one_of_some_weft_counts() -> None:
    """Wefts 1 to 3 run on subpartitions 1 to 3: R260@2 is the destination of weft 2."""
    text = TEXT.replace("FADD R4 = R16@0", "FADD R4 = R260@2")
    assert any("FADD consumes a register that it writes" in message for message in messages(text))


FEATURES = [
    ({"dynamic_parallelism": False}, "mode fiber; h100+fiber has dynamic_parallelism off"),
    ({"fine_scheduling": False}, "DEPBAR.BIND; h100+fiber has fine_scheduling off"),
    ({"fine_scheduling": False}, "DEPBAR.BIT; h100+fiber has fine_scheduling off"),
    ({"fine_scheduling": False}, "WMMA; h100+fiber has fine_scheduling off"),
    ({"busy_bits": "paper"}, 'DEPBAR.BIND; h100+fiber has busy_bits = "paper", which has no binds'),
    ({"register_sharing": False}, "a source in subpartition 0; h100+fiber has register_sharing off"),
    ({"sharing_scope": "subpartition"}, 'a source in subpartition 2; h100+fiber has sharing_scope = "subpartition"'),
    ({"max_wefts_per_subpartition": 0}, "4 wefts; h100+fiber has 0 contexts a subpartition"),
    ({"vector_registers": 1024}, "400 registers of each subpartition; h100+fiber has 256"),
]


@pytest.mark.parametrize(("change", "message"), FEATURES, ids=[message for _, message in FEATURES])
def test_a_feature_that_is_switched_off_is_a_user_error(change: dict[str, object], message: str) -> None:
    m = dataclasses.replace(machine("h100+fiber"), **change)  # type: ignore[arg-type]
    with pytest.raises(UserError) as error:
        verify(parse_program(TEXT), m)
    assert message in str(error.value)


SIMT = """\
warp_program native architecture=sm_90 mode="cuda-native"
work static grid=1 attributes=[zero]
item 0
role all first_warp=0 warps=4 entry=all registers_per_thread=32
code
all:
  [B------:R-:W-:S01] SETFIBER fibers=128
  [B------:R-:W-:S01] FADD R4 = R5
  [B------:R-:W-:S01] EXIT
"""

BAD_SIMT = [
    ('mode="cuda-native"', "", "SETFIBER in a program of mode simt; it needs mode fiber"),
    ("fibers=128", "fibers=64", "SETFIBER of a cuda-native program names all fibers: 128, without all_scope"),
    ("fibers=128", "fibers=128 all_scope", "names all fibers: 128, without all_scope"),
    ("FADD R4 = R5", "SETFIBER fibers=128", "has a SETFIBER at each entry of a role, and nowhere else"),
    ("SETFIBER fibers=128", "NOP", "has a SETFIBER at each entry of a role, and nowhere else"),
    ("FADD R4 = R5", "FADD R4 = R5@1", "a register with a place in a program of mode cuda-native"),
    ("FADD R4 = R5", "DEPBAR.BIND bind=[0]", "DEPBAR.BIND in a program of mode cuda-native; it needs mode fiber"),
    (
        "registers_per_thread=32",
        "registers_per_thread=32 base=256",
        "role 'all' has base 256; in mode cuda-native it is 0",
    ),
    ('mode="cuda-native"', 'mode="cuda-native" fiber=64', "a FIBER note in a program of mode cuda-native"),
]


def test_a_good_cuda_native_program_is_accepted() -> None:
    verify(parse_program(SIMT), machine("h100+fiber"))


@pytest.mark.parametrize(("old", "new", "message"), BAD_SIMT, ids=[f"{old} / {new}" for old, new, _ in BAD_SIMT])
def test_a_broken_rule_of_cuda_native_is_named(old: str, new: str, message: str) -> None:
    assert any(message in text for text in messages(SIMT.replace(old, new, 1))), messages(SIMT.replace(old, new, 1))


def test_todays_gpus_run_neither_mode() -> None:
    for text in (TEXT, SIMT):
        with pytest.raises(UserError, match="h100 has dynamic_parallelism off"):
            verify(parse_program(text), machine("h100"))
