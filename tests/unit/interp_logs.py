"""A hand-made pipelined matrix product for interp and trace tests: a bulk-copy producer and a warp group of consumers.

The log is written by `run`, which places the steps of a correct pipeline in time; tests drop or move steps.
"""

from __future__ import annotations

import numpy as np

from heddle.ir.warp import (
    Access,
    Barrier,
    BarrierRef,
    Count,
    DataObject,
    Effect,
    Instruction,
    Ring,
    Role,
    Source,
    Tensor,
    WarpProgram,
    Work,
)
from heddle.sim.result import EVENT, EventKind, SimResult, Stall

M, N, K, STEP, DEPTH = 64, 16, 64, 16, 2
STEPS = K // STEP
WAIT_EMPTY, EXPECT, LOAD_A, LOAD_B, PRODUCER_LOOP, PRODUCER_EXIT = range(6)
WAIT_FULL, MMA, COMMIT, MMA_WAIT, RELEASE, CONSUMER_LOOP, STORE, CONSUMER_EXIT = range(6, 14)
OPERATIONS = (
    *("Wait", "Expect", "TmaLoad", "TmaLoad", "For", "Exit"),
    *("Wait", "Mma", "MmaCommit", "MmaWait", "Arrive", "For", "StoreGlobal", "Exit"),
)


def program(m: int = M, n: int = N) -> WarpProgram:
    """C = A B.T of one tile; source line of an instruction = 10 + pc."""
    empty = BarrierRef(name="empty", ring="stage")
    full = BarrierRef(name="full", ring="stage")
    work = Work(attributes=("row",), items=np.zeros((1, 1), np.int64), schedule="launch", grid=1)
    bytes_per_step = (M + N) * STEP * 2
    rows: list[tuple[str, dict[str, object]]] = [
        ("SYNCS.TRYWAIT", {"barrier": BarrierRef(name="empty", ring="stage", flip=True)}),
        ("SYNCS.EXPECT", {"barrier": full, "bytes": bytes_per_step}),
        ("UTMALDG", {"barrier": full, "bytes": M * STEP * 2, "effect": 0}),
        ("UTMALDG", {"barrier": full, "bytes": N * STEP * 2, "effect": 1, "advance": ("stage",)}),
        ("LOOP", {"target": WAIT_EMPTY, "count": Count(STEPS)}),
        ("EXIT", {}),
        ("SYNCS.TRYWAIT", {"barrier": full}),
        ("HGMMA", {"shape": (M, N, STEP), "form": "ss", "dtype": "fp16", "effect": 2}),
        ("WARPGROUP.COMMIT", {}),
        ("WARPGROUP.DEPBAR", {"pending": 0}),
        ("SYNCS.ARRIVE", {"barrier": empty, "advance": ("stage",)}),
        ("LOOP", {"target": WAIT_FULL, "count": Count(STEPS)}),
        ("STG", {"effect": 3}),
        ("EXIT", {}),
    ]
    return WarpProgram(
        name="tiny_gemm",
        architecture="sm_90",
        instructions=tuple(Instruction(op=op, source=pc, **fields) for pc, (op, fields) in enumerate(rows)),
        roles=(
            Role(name="consumer", first_warp=0, warps=4, entry=WAIT_FULL, registers_per_thread=64),
            Role(name="producer", first_warp=4, warps=1, entry=WAIT_EMPTY, registers_per_thread=24),
        ),
        rings=(Ring(name="stage", depth=DEPTH),),
        barriers=(Barrier(name="full", count=DEPTH, arrivals=1), Barrier(name="empty", count=DEPTH, arrivals=4)),
        tensors=(
            Tensor(name="A", shape=(m, K), dtype="fp16"),
            Tensor(name="B", shape=(n, K), dtype="fp16"),
            Tensor(name="C", shape=(m, n), dtype="fp16", role="output"),
        ),
        work=work,
        sources=tuple(Source(file="gemm.py", line=10 + pc, operation=name) for pc, name in enumerate(OPERATIONS)),
        effects=_effects(),
        objects=(
            DataObject(name="a", space="shared", shape=(DEPTH, M, STEP), dtype="fp16", scope="cta"),
            DataObject(name="b", space="shared", shape=(DEPTH, N, STEP), dtype="fp16", scope="cta"),
            DataObject(name="acc", space="register", shape=(M, N), dtype="fp32", scope="cta"),
        ),
        flops=2 * m * n * K,
    )


def _effects() -> tuple[Effect, ...]:
    warp_rows = Access(object="acc", rows=16, cols=N, rank_row=16)
    return (
        Effect(
            kind="copy_async",
            reads=(Access(object="A", rows=M, cols=STEP, col_step=STEP),),
            writes=(Access(object="a", rows=M, cols=STEP, ring="stage"),),
        ),
        Effect(
            kind="copy_async",
            reads=(Access(object="B", rows=N, cols=STEP, col_step=STEP),),
            writes=(Access(object="b", rows=N, cols=STEP, ring="stage"),),
        ),
        Effect(
            kind="mma",
            reads=(
                Access(object="a", rows=16, cols=STEP, rank_row=16, ring="stage"),
                Access(object="b", rows=N, cols=STEP, ring="stage"),
            ),
            writes=(warp_rows,),
            params={"accumulate": 2, "level": 0},
        ),
        Effect(kind="store", reads=(warp_rows,), writes=(Access(object="C", rows=16, cols=N, rank_row=16),)),
    )


class Log:
    """Collects records."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def add(self, kind: EventKind, warp: int, pc: int, begin: int, end: int, **fields: int) -> None:
        """Append a record of SM 0, slot 0."""
        counters = (fields.get("counter", 0), 0, 0, 0)
        detail, stage = fields.get("detail", 0), fields.get("stage", 0)
        self.rows.append((kind, 0, 0, warp, pc, 0, begin, end, detail, stage, counters))

    def issue(self, warp: int, pc: int, cycle: int, counter: int = 0) -> None:
        """Append an issue."""
        self.add(EventKind.ISSUE, warp, pc, cycle, cycle + 1, counter=counter)

    def array(self) -> np.ndarray:
        """All records."""
        return np.array(self.rows, EVENT)


def run(drop: frozenset[int] = frozenset(), copy_latency: int = 300, mma_tail: int = 40) -> np.ndarray:
    """Write the log of the pipeline; instructions in `drop` never issue, and nothing waits for them.

    Without WAIT_FULL the consumers start once the copy is issued; without MMA_WAIT they release the stage at once;
    without WAIT_EMPTY the producer does not wait for the release.
    """
    log = Log()

    def step(warp: int, pc: int, cycle: int, counter: int = 0) -> None:
        if pc not in drop:
            log.issue(warp, pc, cycle, counter)

    released = [0] * STEPS  # cycle at which the consumers release the stage of step k
    ready, free = 0, 0
    for k in range(STEPS):
        if k >= DEPTH and WAIT_EMPTY not in drop:
            ready = max(ready, released[k - DEPTH] + 10)
        for offset, pc in enumerate((WAIT_EMPTY, EXPECT, LOAD_A, LOAD_B, PRODUCER_LOOP)):
            step(4, pc, ready + offset, k)
        landed = ready + 3 + copy_latency
        log.add(EventKind.COPY, 4, LOAD_A, ready + 2, landed)
        log.add(EventKind.COPY, 4, LOAD_B, ready + 3, landed)
        log.add(EventKind.BARRIER, -1, -1, landed, landed, detail=0, stage=k % DEPTH)
        start = max(free, ready + 10 if WAIT_FULL in drop else landed)
        for warp in range(4):
            step(warp, WAIT_FULL, start, k)
            step(warp, MMA, start + 1, k)
            step(warp, COMMIT, start + 2, k)
        log.add(EventKind.TENSOR, 0, MMA, start + 2, start + 34)
        done = start + 34 + mma_tail
        log.add(EventKind.COMPLETE, 0, MMA, done, done)
        free = start + 4 if MMA_WAIT in drop else done
        for warp in range(4):
            step(warp, MMA_WAIT, free, k)
            step(warp, RELEASE, free + 1, k)
            step(warp, CONSUMER_LOOP, free + 2, k)
        free += 3
        released[k] = free + 10
        log.add(EventKind.BARRIER, -1, -1, free + 10, free + 10, detail=1, stage=k % DEPTH)
        ready += 6
    step(4, PRODUCER_EXIT, ready)
    for warp in range(4):
        step(warp, STORE, free)
        log.add(EventKind.STORE, warp, STORE, free, free + 3)
        step(warp, CONSUMER_EXIT, free + 4)
    return log.array()


def result(log: np.ndarray, instructions: int = len(OPERATIONS)) -> SimResult:
    """Wrap a log in a result whose accounts hold: every warp is resident for all cycles, and waits unless it issues."""
    cycles = int(log["end"].max()) + 1
    stalls = np.zeros((5, len(Stall)), np.int64)
    stalls_pc = np.zeros((instructions, len(Stall)), np.int64)
    for record in log[log["kind"] == EventKind.ISSUE]:
        stalls[record["warp"], Stall.SELECTED] += 1
        stalls_pc[record["pc"], Stall.SELECTED] += 1
    for warp in range(5):
        idle = cycles - int(stalls[warp].sum())
        stalls[warp, Stall.MBARRIER] += idle
        stalls_pc[WAIT_FULL if warp < 4 else WAIT_EMPTY, Stall.MBARRIER] += idle
    issued = int(stalls[:, Stall.SELECTED].sum())
    return SimResult(
        cycles=cycles,
        sm_cycles=cycles,
        warp_instructions=issued,
        stalls=stalls,
        warp_role=np.array([0, 0, 0, 0, 1]),
        stalls_pc=stalls_pc,
        pipe_busy={"fp32": 10.0, "lsu": 4.0},
        pipe_instances={"fp32": 4, "lsu": 1},
        tensor_busy_cycles=32.0 * STEPS,
        issue_slots_used=issued,
        active_warp_cycles=5 * cycles,
        dram_read_bytes=(M + N) * K * 2,
        dram_write_bytes=M * N * 2,
        l2_read_bytes=(M + N) * K * 2,
        l2_write_bytes=M * N * 2,
        shared_bytes=4096,
        simulated_sms=1,
        log=log,
        mode="chip",
    )


def inputs(m: int = M, n: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded normal inputs, representable in fp16."""
    random = np.random.default_rng(seed)
    return {
        "A": random.standard_normal((m, K)).astype(np.float16).astype(np.float32),
        "B": random.standard_normal((n, K)).astype(np.float16).astype(np.float32),
    }


def expected(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The product in float64."""
    return {"C": values["A"].astype(np.float64) @ values["B"].astype(np.float64).T}
