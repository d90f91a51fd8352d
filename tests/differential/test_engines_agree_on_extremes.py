"""Do the engines agree where a queue, a list of groups or a mask is as full as a program can make it?"""

from __future__ import annotations

import dataclasses

import pytest

from agreement import differences
from heddle.errors import UserError
from heddle.ir.warp_text import parse_program
from heddle.machine import Machine, machine
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

HEAD = """\
warp_program extreme architecture=sm_90 cluster_size={cluster}
work {schedule} grid=8 attributes=[base, semaphore]
{items}
role all first_warp=0 warps={warps} entry=start registers_per_thread={registers}
ring stages depth=3
barrier full count=3 arrivals=1
tensor a shape=[4096, 4096] dtype=fp16
tensor c shape=[4096, 4096] dtype=fp16 role=output
stream a tensor=a direction=load blocks=64 block_bytes=4096 base=base step=1
stream c tensor=c direction=store blocks=64 block_bytes=4096 base=base step=1
code
start:
"""
LINE = "  [B------:R-:W-:S01] "
EXIT = LINE + "EXIT\n"


def h100(**changes: object) -> Machine:
    """Return a small H100."""
    return dataclasses.replace(machine("h100"), **{"sms": 2, **changes})


def lines(*instructions: str) -> str:
    """Return instructions that wait for nothing."""
    return "".join(f"{LINE}{text}\n" for text in instructions)


CASES = {
    "many copy groups in flight, most of them left pending": lines(
        *["LDGSTS bytes=512 stream=a(parts=8, part_by_rank)", "LDGDEPBAR"] * 40, "DEPBAR pending=15", "DEPBAR"
    ),
    "many empty copy groups": lines(*["LDGDEPBAR"] * 80, "DEPBAR pending=3", "DEPBAR"),
    "one group of many copies": lines(*["LDGSTS bytes=512 stream=a(parts=8)"] * 40, "LDGDEPBAR", "DEPBAR"),
    "many bulk store groups": lines(
        *["UTMASTG bytes=2048 stream=c", "UTMACMDFLUSH"] * 50, "UTMADEPBAR pending=15", "UTMADEPBAR"
    ),
    "more bulk copies than the queue holds": lines(
        "SYNCS.EXPECT bytes=163840 barrier=full(ring=stages) by=role",
        *["UTMALDG bytes=4096 stream=a barrier=full(ring=stages) by=role"] * 40,
        "SYNCS.TRYWAIT barrier=full(ring=stages)",
    ),
    "many matrix instructions, committed one by one": lines(
        *["HGMMA R8:4 = m64n64k16 form=ss dtype=fp16", "WARPGROUP.COMMIT"] * 40,
        "WARPGROUP.DEPBAR pending=15",
        "WARPGROUP.DEPBAR",
    ),
    "matrix instructions without a commit": lines(
        *["HGMMA R8:4 = R4:4 m64n8k16 form=rs dtype=bf16"] * 60, "WARPGROUP.COMMIT", "WARPGROUP.DEPBAR"
    ),
    "waits for groups that were never committed": lines(
        "DEPBAR", "UTMADEPBAR", "WARPGROUP.DEPBAR", "WARPGROUP.COMMIT", "WARPGROUP.DEPBAR", "UTMACMDFLUSH", "UTMADEPBAR"
    ),
    "every counter at once": "".join(
        f"  [B------:R{k}:W{(k + 1) % 6}:S01] LDS R4:4 = R8 bytes=512 conflict_ways=32\n" for k in range(6)
    )
    + "  [B012345:R-:W-:S01] NOP\n",
    "one counter for both ends of an instruction": "  [B------:R2:W2:S01] STG R4:2, R8:4 bytes=512 stream=c\n"
    "  [B--2---:R-:W-:S15] NOP\n",
    "long stores before the end": lines(*["STG R4:2, R8:4 bytes=512 stream=c(parts=8, part_by_rank)"] * 20),
    "signals still on their way when the CTA ends": lines(
        "SYNCS.ARRIVE barrier=full(ring=stages) by=role",
        "SYNCS.TRYWAIT barrier=full(ring=stages)",
        "SYNCS.EXPECT bytes=4096 barrier=full(ring=stages) by=role",
        "UTMALDG bytes=4096 stream=a barrier=full(ring=stages) by=role",
        "SYNCS.ARRIVE barrier=full(ring=stages, offset=1) by=role",
    ),
    "many named barriers": lines(*[f"BAR.SYNC warps={{warps}} barrier_id={k}" for k in range(16)]),
}
SHALLOW = {  # queues of one, a tiny L2, and a CTA that follows before late signals arrive
    "lsu_queue_depth": 1,
    "wgmma_queue_depth": 1,
    "l2_partitions": 1,
    "l2_bytes": 16384,
    "cta_launch_cycles": 1,
    "max_ctas_per_sm": 1,
}
SHAPES = [
    (1, "static", 1, 4),
    pytest.param(1, "launch", 5, 4, marks=pytest.mark.slow),
    (2, "dynamic", 3, 4),
    pytest.param(1, "launch", 3, 16, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("cluster", "schedule", "items", "warps"), SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_engines_agree_on_extremes(case: str, cluster: int, schedule: str, items: int, warps: int) -> None:
    rows = "\n".join(f"item {item} {item}" for item in range(items))
    head = HEAD.format(cluster=cluster, schedule=schedule, items=rows, warps=warps, registers=16)
    code = CASES[case].replace("{warps}", str(warps))
    program = parse_program(head + code + lines("NEXT -> start") + EXIT)
    for changes in ({}, SHALLOW):
        options = {"mode": "chip", "l2_state": "cold"}
        expected = simulate_reference(program, h100(**changes), **options)
        assert not differences(expected, simulate(program, h100(**changes), fast_forward=False, **options))


def test_both_engines_call_a_deadlock_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 200)
    head = HEAD.format(cluster=1, schedule="static", items="item 0 0", warps=2, registers=16)
    program = parse_program(head + lines("SYNCS.TRYWAIT barrier=full(ring=stages)") + EXIT)
    for engine in ("reference", "compiled"):
        with pytest.raises(UserError, match="deadlock"):
            simulate(program, h100(), mode="chip", l2_state="cold", engine=engine)
