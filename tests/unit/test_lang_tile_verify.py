"""Does the verifier reject each kind of broken tile program, naming the line?

Programs are edited as text: one replacement breaks one rule.
"""

from __future__ import annotations

import pytest

from heddle.errors import UserError
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.tile_verify import verify
from heddle.kernels.gemm.shape import GemmConfig
from heddle.kernels.registry import KERNELS
from heddle.machine import machine

PARAMS = {"m": 512, "n": 256, "k": 256, "dtype": "fp16"}
COOPERATIVE = GemmConfig(schedule="cooperative", tile_m=128, tile_n=128, tile_k=64, stages=3)
PINGPONG = GemmConfig(schedule="pingpong", tile_m=64, tile_n=128, tile_k=64, stages=3)
PAIR = GemmConfig(schedule="tcgen05", tile_m=128, tile_n=128, tile_k=64, stages=3, cluster=2)


@pytest.fixture(scope="module")
def text() -> str:
    """The text of a correct program."""
    return print_program(KERNELS["gemm"].build(machine("h100"), PARAMS, COOPERATIVE))


def reject(text: str, old: str, new: str, count: int = 1) -> str:
    """Replace, verify, and return the message."""
    assert old in text
    with pytest.raises(UserError) as caught:
        verify(parse_program(text.replace(old, new, count)))
    return caught.value.message


CASES = {
    "tile": ("src=acc ", "src=act ", "unknown register tile 'act'; allowed: acc"),
    "tensor": ("src=A(", "src=D(", "unknown tensor 'D'"),
    "shared": ("dst=a(", "dst=x(", "unknown shared tile 'x'"),
    "barrier": ("wait barrier=full", "wait barrier=fool", "unknown barrier 'fool'"),
    "ring": ("advance rings=[load]", "advance rings=[lead]", "unknown ring 'lead'"),
    "loop": ("loop=kb", "loop=kc", "unknown loop around this line 'kc'"),
    "attribute": ("row=row, ", "row=raw, ", "unknown work item attribute 'raw'"),
    "twice": ("shared b ", "shared a ", "name 'a' is declared twice"),
    "count": ("count=k_blocks-1", "count=k_blocks-4", "loop 'kb' runs 0 times"),
    "inside": ("src=out(rows=128", "src=out(rows=128, row=8", "128 x 64 at (8, 0) does not lie inside 'out'"),
    "copy": ("src=B(rows=128", "src=B(rows=64", "the destination is 128 x 64, expected 64 x 64"),
    "store": ("src=acc ", "src=acc src_col=120 ", "128 x 64 from column 120 on does not lie inside 'acc' of 128 x 128"),
    "mma": ("b=b(rows=128", "b=b(rows=64", "the second operand is 64 x 64, expected 128 x 64"),
    "mma-type": (
        "shared b rows=128 cols=64 dtype=fp16",
        "shared b rows=128 cols=64 dtype=bf16",
        "a product of fp16 and",
    ),
    "acc-type": ("cols=128 dtype=fp32", "cols=128 dtype=fp16", "accumulators are fp32, this one is fp16"),
    "swizzle": (
        "shared out rows=128 cols=64 dtype=fp16",
        "shared out rows=128 cols=64 dtype=fp32",
        "a bulk copy moves up to 256 rows of up to 128 bytes (the swizzle), this one 128 rows of 256 bytes",
    ),
    "grid": ("warp_grid=[8, 1]", "warp_grid=[4, 1]", "is spread over 4 x 1 warps, role 'consumer' has 8"),
    "depth": ("ring load depth=3", "ring load depth=4", "ring 'load' has 4 stages,"),
    "groups": ("role consumer warps=8", "role consumer warps=6", "is spread over 8 x 1 warps"),
    "arrivals": (
        "barrier empty count=3 arrivals=8",
        "barrier empty count=3 arrivals=4",
        "barrier 'empty' is declared for 4 arrivals, but a phase gets 8 (consumer: 8)",
    ),
    "nobody": ("expect barrier=full", "expect barrier=empty", "nobody arrives at barrier 'full'"),
    "bytes": ("bytes=32768", "bytes=32760", "barrier 'full' expects 32760 bytes, the copies here bring 32768"),
    "named": ("sync id=1 warps=8", "sync id=1 warps=4", "named barrier 1 is used with 4 and with 8 warps"),
    "named-id": ("sync id=1 warps=8", "sync id=16 warps=8", "named barrier 16 over 8 warps; ids are 0 to 15"),
    "multicast": (
        "col_step=64) barrier=full(ring=load)",
        "col_step=64) barrier=full(ring=load) multicast=2",
        "2 CTAs take part, but the cluster has 1",
    ),
    "sm_80": (
        "architecture=sm_90",
        "architecture=sm_80",
        "ClusterSync needs|TmaLoad needs|MmaWait waits|TmaStoreWait needs",
    ),
    "sm_100": ("architecture=sm_90", "architecture=sm_100", "on sm_100 accumulators are in tensor memory"),
    "architecture": ("architecture=sm_90", "architecture=sm_70", "unknown architecture 'sm_70'"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_rule_is_reported(text: str, name: str) -> None:
    old, new, message = CASES[name]
    got = reject(text, old, new)
    assert any(part in got for part in message.split("|")), got


def test_the_error_names_the_line_of_the_kernel(text: str) -> None:
    with pytest.raises(UserError) as caught:
        verify(parse_program(text.replace("b=b(rows=128", "b=b(rows=64", 1)))
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("sm90_pipeline.py")


def test_a_ring_that_is_never_stepped(text: str) -> None:
    kept = [line for line in text.splitlines() if "advance rings=[load]" not in line]
    with pytest.raises(UserError, match="role 'consumer' uses ring 'load' but never steps it"):
        verify(parse_program("\n".join(kept)))


def test_register_tile_read_first(text: str) -> None:
    kept = [line for line in text.splitlines() if "accumulate=false" not in line]
    with pytest.raises(UserError, match="register tile 'acc' is read before anything is written"):
        verify(parse_program("\n".join(kept)))


def test_register_tile_of_two_roles() -> None:
    broken = print_program(KERNELS["gemm"].build(machine("h100"), PARAMS, PINGPONG)).replace("acc=acc1", "acc=acc0")
    with pytest.raises(UserError, match="register tile 'acc0' belongs to role 'consumer0'"):
        verify(parse_program(broken))


def test_wgmma_by_warps_that_are_no_group(text: str) -> None:
    producer = text[text.index("role producer") :]
    moved = text.replace(producer, "").replace("role consumer", producer + "role consumer")
    with pytest.raises(UserError, match="role 'consumer' has warps 1 to 8; wgmma is issued by groups of 4 warps"):
        verify(parse_program(moved))


def test_arrivals_from_both_ctas_of_a_pair_are_counted() -> None:
    pair = print_program(KERNELS["gemm"].build(machine("b200"), PARAMS, PAIR))
    message = reject(pair, "barrier full count=3 arrivals=2", "barrier full count=3 arrivals=1")
    assert "but a phase gets 2 (load: 2)" in message
