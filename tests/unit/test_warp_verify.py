"""Does the verifier of warp programs accept a good program and name every rule that a bad one breaks?"""

from __future__ import annotations

import dataclasses

import pytest

from heddle.errors import UserError
from heddle.ir.warp_text import parse_program
from heddle.ir.warp_verify import problems, verify
from heddle.machine import machine

TEXT = """\
warp_program good architecture=sm_90 cluster_size=2 shared_memory_bytes=1024
work static grid=1 attributes=[base, k_tiles, flag]
item 0 3 1
role load first_warp=0 warps=4 entry=load registers_per_thread=24
role use first_warp=4 warps=8 entry=use registers_per_thread=40
ring stages depth=2
barrier full count=2 arrivals=1
barrier empty count=2 arrivals=8
tensor a shape=[128, 96] dtype=fp16
tensor c shape=[128, 96] dtype=fp16 role=output
stream a_tiles tensor=a direction=load blocks=3 block_bytes=4096 base=base
stream c_tiles tensor=c direction=store blocks=3 block_bytes=4096 base=base
object shared_a space=shared shape=[2, 64, 64] dtype=fp16 scope=cta
source good.py line=12 operation=load
source good.py line=15 operation=use
effect copy reads=[shared_a(rows=64, cols=64, ring=stages)]
code
load:
  [B------:R-:W-:S01] SYNCS.TRYWAIT barrier=empty(ring=stages, flip)
  [B------:R-:W-:S01] SYNCS.EXPECT bytes=4096 barrier=full(ring=stages) by=role
  [B------:R-:W-:S01] UTMALDG bytes=4096 stream=a_tiles barrier=full(ring=stages) by=role advance=[stages]
  [B------:R-:W-:S01] LOOP count=k_tiles -> load
  [B------:R-:W-:S01] NEXT -> load
  [B------:R-:W-:S01] EXIT
use:
  [B------:R-:W-:S01] SYNCS.TRYWAIT barrier=full(ring=stages) source=1 effect=0
  [B------:R-:W0:S01] LDS R4:4 = R0 bytes=512 conflict_ways=2 source=1
  [B0-----:R-:W-:S01] HGMMA R8:4 = m64n8k16 form=ss dtype=fp16 source=1
  [B------:R-:W-:S01] SYNCS.ARRIVE barrier=empty(ring=stages) advance=[stages] source=1
  [B------:R-:W-:S01] LOOP count=k_tiles source=1 -> use
  [B------:R-:W-:S01] SKIP attribute=flag source=1 -> end
  [B------:R-:W-:S01] STG R0:2, R4:4 bytes=512 stream=c_tiles source=1
  [B------:R-:W-:S01] BAR.SYNC warps=8 barrier_id=1 source=1
end:
  [B------:R-:W-:S01] UCGABAR warps=16 source=1
  [B------:R-:W-:S01] NEXT source=1 -> use
  [B------:R-:W-:S01] EXIT source=1
"""

BAD = [
    ("first_warp=4", "first_warp=3", "warp 3 belongs to role 'load' and to role 'use'"),
    ("first_warp=4", "first_warp=5", "warps [4] of the CTA have no role"),
    ("warps=4 entry=load", "warps=0 entry=load", "role 'load' has 0 warps from warp 0"),
    ("entry=use", "entry=99", "role 'use' enters at 99; the code is from 0 to 16"),
    ("role use first", "role load first", "role 'load' is declared 2 times"),
    ("depth=2", "depth=0", "ring 'stages' has depth 0"),
    ("arrivals=8", "arrivals=0", "barrier 'empty': 2 elements of 0 arrivals"),
    ("tensor=a ", "tensor=b ", "unknown tensor 'b'; declared: a, c"),
    ("blocks=3", "blocks=0", "0 blocks of 4096 bytes"),
    ("base=base", "base=bas", "unknown item attribute 'bas'"),
    (
        "block_bytes=4096 base",
        "block_bytes=4096 multicast=3 base",
        "multicast to 3 CTAs; allowed: 1 or the cluster",
    ),
    ("item 0 3 1\n", "", "there are no work items"),
    ("grid=1", "grid=0", "grid = 0 clusters"),
    ("shared_a(rows", "shared_b(rows", "effect 0 (copy): unknown object 'shared_b'"),
    ("B0-----:R-:W-:S01", "B0-----:R-:W7:S01", "dependence counter 7; allowed: 0 to 5"),
    ("W0:S01] LDS", "W0:S16] LDS", "stall count 16; allowed: 0 to 15"),
    ("advance=[stages] source", "advance=[stage] source", "unknown ring 'stage'"),
    ("full(ring=stages) by", "ful(ring=stages) by", "unknown barrier 'ful'; declared: empty, full"),
    ("full count=2", "full count=1", "element 1 of barrier 'full', which has 1 elements"),
    ("full(ring=stages) source", "full(ring=stages, cta=leader) source", "a warp can wait on its own CTA's only"),
    (
        "UTMALDG bytes=4096 stream=a_tiles barrier",
        "UBLKCP.S.S bytes=4096 barrier",
        "UBLKCP.S.S signals the barrier of CTA 'own'; needs cta=peer",
    ),
    (
        "full(ring=stages) by=role advance",
        "full(ring=stages, cta=peer) by=role advance",
        "UTMALDG signals the barrier of CTA 'peer'; needs own, leader or all",
    ),
    ("stream=a_tiles", "stream=b_tiles", "unknown stream 'b_tiles'"),
    ("stream=a_tiles", "stream=c_tiles", "UTMALDG on stream 'c_tiles', whose direction is store; needs load"),
    ("stream=a_tiles", "stream=a_tiles(part=2, parts=2)", "part 2 of 2 of stream 'a_tiles'"),
    ("bytes=512 conflict", "conflict", "LDS needs bytes, 1 or more; got 0"),
    ("ways=2", "ways=0", "conflict_ways = 0"),
    ("effect=0", "effect=1", "effect 1; there are 1"),
    ("source=1 -> end", "source=7 -> end", "source 7; there are 2"),
    ("form=ss", "form=ts", "form 'ts' of HGMMA; allowed: ss, rs"),
    ("m64n8k16 ", "", "HGMMA needs a shape"),
    ("dtype=fp16 source", "source", "HGMMA needs a dtype"),
    ("HGMMA R8", "UTCHMMA R8", None),
    ("LDS R4:4 = R0 bytes=512", "DEPBAR pending=16", "pending = 16; allowed: 0 to 15"),
    ("barrier_id=1", "barrier_id=16", "named barrier 16; allowed: 0 to 15"),
    ("BAR.SYNC warps=8 ", "BAR.SYNC ", "BAR.SYNC needs warps, 1 or more"),
    (
        "BAR.SYNC warps=8",
        "BAR.SYNC warps=7",
        "waits for 7 warps, which its roles cannot make up (use 8)",
    ),
    (
        "UCGABAR warps=16",
        "UCGABAR warps=8",
        "cluster barrier waits for 8 warps, which its roles cannot make up (use 16)",
    ),
    ("BAR.SYNC warps=8", "BAR.SYNC by=role warps=8", "by=role: all warps of a role execute BAR.SYNC together"),
    ("count=k_tiles ->", "count=tiles ->", "unknown item attribute 'tiles'"),
    ("LOOP count=k_tiles -> load", "LOOP count=k_tiles -> use", "branch to 6; LOOP jumps backward"),
    ("-> end", "-> use", "branch to 6; SKIP jumps forward"),
    ("attribute=flag", "attribute=flags", "unknown item attribute 'flags'"),
    ("EXIT source=1", "NOP source=1", "role 'use' runs past the end of the code"),
    ("R4:4 = R0", "R38:4 = R0", "register R41; role 'use' has R0 to R39"),
    ("R4:4 = R0", "R6:4 = R0", "a group of 4 registers from R6; it must start at a multiple of 4"),
    ("warps=8 entry", "warps=6 entry", "HGMMA needs whole warp groups (4j to 4j + 3)"),
]


def messages(text: str) -> list[str]:
    """Return what is wrong with a program given as text."""
    program = parse_program(text)
    return [problem.text(program) for problem in problems(program)]


def test_good_program_is_accepted_on_its_machine() -> None:
    verify(parse_program(TEXT), machine("h100"))


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[f"{old} / {new}" for old, new, _ in BAD])
def test_broken_rule_is_named(old: str, new: str, message: str | None) -> None:
    assert old in TEXT
    found = messages(TEXT.replace(old, new, 1))
    if message is None:  # the change is legal
        assert not found
    else:
        assert any(message in text for text in found), found


def test_the_barrier_of_the_peer_needs_clusters_of_even_size() -> None:
    text = TEXT.replace("SYNCS.ARRIVE barrier=empty(ring=stages)", "SYNCS.ARRIVE barrier=empty(ring=stages, cta=peer)")
    refused = "the barrier of the peer in clusters of {}; needs pairs of CTAs"
    for size in (1, 2, 3, 4):
        found = messages(text.replace("cluster_size=2", f"cluster_size={size}"))
        assert any(refused.format(size) in problem for problem in found) == bool(size % 2), found


def test_message_names_counter_opcode_and_source_line() -> None:
    (text,) = messages(TEXT.replace("bytes=512 conflict", "conflict"))
    assert text == "pc 7 (LDS), good.py:15 use: LDS needs bytes, 1 or more; got 0"


def test_all_problems_are_in_one_error_at_the_first_source_line() -> None:
    text = TEXT.replace("bytes=512 conflict", "conflict").replace("attribute=flag", "attribute=flags")
    with pytest.raises(UserError, match=r"warp program 'good' has 2 problems:\n  pc 7 .*\n  pc 11 ") as caught:
        verify(parse_program(text))
    assert str(caught.value.where) == "good.py:15"


def test_long_lists_of_problems_are_cut() -> None:
    program = parse_program(TEXT)
    bad = tuple(dataclasses.replace(i, op="BOGUS") for i in program.instructions)
    with pytest.raises(UserError, match=r"and \d+ more") as caught:
        verify(dataclasses.replace(program, instructions=bad))
    assert len(str(caught.value).splitlines()) == 12


LIMITS = [
    ({"shared_memory_bytes": 1 << 20}, "1048576 bytes of shared memory a CTA; h100 allows 232448"),
    ({"cluster_size": 16}, "16 CTAs a cluster; h100 allows 8"),
    ({"tensor_memory_columns": 4}, "4 columns of tensor memory; h100 allows 0"),
]


@pytest.mark.parametrize(("change", "message"), LIMITS, ids=[message for _, message in LIMITS])
def test_limits_of_the_machine_are_checked(change: dict[str, int], message: str) -> None:
    program = dataclasses.replace(parse_program(TEXT), **change)
    assert message in [problem.text(program) for problem in problems(program, machine("h100"))]


def test_registers_a_thread_are_limited_by_the_machine() -> None:
    program = parse_program(TEXT.replace("registers_per_thread=40", "registers_per_thread=300"))
    found = [problem.message for problem in problems(program, machine("h100"))]
    assert "role 'use' has 300 registers a thread; h100 allows 255" in found
