"""The opcodes of warp programs, named after SASS mnemonics, and how the engine treats each class.

`unit` selects the engine's behaviour (see docs/reference/engine.md); pipe, initiation interval and latency of an opcode
come from the machine description (`Machine.op_timing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Unit(IntEnum):
    """Behaviour classes of the engine."""

    FIXED = 0  # fixed latency: FMA, ALU, conversions, moves, HMMA with a stall count or a scoreboard
    VARIABLE = 1  # known latency signalled by a scoreboard: MUFU, HMMA, SHFL, S2R
    SHARED = 2  # LDS, STS, LDSM, STSM: the load/store unit and shared memory
    GLOBAL = 3  # LDG, STG, RED, LDGSTS: the load/store unit, then L2
    GROUP_COMMIT = 4  # LDGDEPBAR: close a group of LDGSTS
    GROUP_WAIT = 5  # DEPBAR.LE: wait until at most `pending` groups of LDGSTS are outstanding
    WGMMA = 6  # HGMMA, by four warps together
    WGMMA_ARRIVE = 7  # WARPGROUP.ARRIVE
    WGMMA_COMMIT = 8  # closes a wgmma group (no SASS of its own: the last HGMMA of a group carries it; one slot here)
    WGMMA_WAIT = 9  # WARPGROUP.DEPBAR: wait until at most `pending` wgmma groups are outstanding
    BULK_LOAD = 10  # UTMALDG
    BULK_STORE = 11  # UTMASTG, UTMAREDG
    BULK_COMMIT = 12  # UTMACMDFLUSH: close a bulk store group
    BULK_WAIT = 13  # DEPBAR on bulk stores: all groups but the youngest `pending` have read their shared memory
    MBARRIER_EXPECT = 14  # SYNCS.ARRIVE.TRANS64 with expect_tx: one arrival plus `bytes` expected
    MBARRIER_ARRIVE = 15  # SYNCS.ARRIVE.TRANS64.A1T0: one arrival
    MBARRIER_WAIT = 16  # SYNCS.PHASECHK.TRANS64.TRYWAIT
    BARRIER_SYNC = 17  # BAR.SYNC: named barrier, wait
    BARRIER_ARRIVE = 18  # BAR.ARV: named barrier, no wait
    CLUSTER_SYNC = 19  # UCGABAR_ARV + WAIT
    TCGEN05_MMA = 20  # UTCHMMA: issued by one warp, asynchronous
    TCGEN05_COMMIT = 21  # UTCBAR: arrive on an mbarrier when all earlier tcgen05.mma of this warp are complete
    TMEM_LOAD = 22  # LDTM
    TMEM_STORE = 23  # STTM
    SET_REGISTERS = 24  # USETMAXREG
    SEM_RELEASE = 25  # global semaphore: add one after this warp's stores are visible
    SEM_ACQUIRE = 26  # global semaphore: wait until it reaches `pending`
    LOOP = 27  # backward branch: counter[level] += 1; taken while counter < count, else counter = 0
    SKIP = 28  # forward branch, taken when item attribute is zero
    NEXT_ITEM = 29  # advance to the next work item; branch to `target` if there is one
    EXIT = 30
    SET_FIBER_NUM = 31  # SETFIBER: all wefts of the FIBER-thread meet; their number changes
    BIND = 32  # DEPBAR.BIND: binds bit changes to the next instruction of the weft
    BUSY_BIT = 33  # DEPBAR.BIT: set or clear one bit of a register group
    WEFT_MMA = 34  # WMMA: a matrix instruction of one weft, or of four neighbours together
    WGMMA_SIGNAL = 35  # WARPGROUP.SIGNAL, hypothetical: four warps together arrive when their wgmma so far have read
    SPLIT = 36  # BRA.P: the first `count` fibers of the role go on, the others branch; a warp may have both
    REJOIN = 37  # BSYNC: the end of a path; a warp goes on at `target` when all its fibers are there
    YIELD = 38  # the other path of the warp goes on, if there is one
    BULK_PEER = 39  # UBLKCP.S.S: bulk copy into the shared memory of the other CTA of a pair


@dataclass(frozen=True, slots=True)
class Opcode:
    """An opcode: its unit and a one-line meaning."""

    name: str
    unit: Unit
    meaning: str


_TABLE: dict[Unit, dict[str, str]] = {
    Unit.FIXED: {
        "FADD": "fp32 add",
        "FMUL": "fp32 multiply",
        "FFMA": "fp32 fused multiply-add",
        "FADD2": "two fp32 adds (sm_100)",
        "FMUL2": "two fp32 multiplies (sm_100)",
        "FFMA2": "two fp32 FMAs (sm_100)",
        "FMNMX": "fp32 minimum or maximum",
        "FMNMX3": "three-input fp32 minimum or maximum (sm_100)",
        "FSETP": "fp32 compare to predicate",
        "FSEL": "fp32 select",
        "HADD2": "fp16x2 add",
        "HMUL2": "fp16x2 multiply",
        "HFMA2": "fp16x2 FMA",
        "F2FP": "pack two fp32 to fp16, bf16 or fp8",
        "IADD3": "three-input integer add",
        "IMAD": "integer multiply-add",
        "LEA": "shift and add",
        "LOP3": "three-input logic",
        "SHF": "funnel shift",
        "PRMT": "byte permute",
        "SEL": "select",
        "ISETP": "integer compare to predicate",
        "PLOP3": "predicate logic",
        "R2P": "bits of a register to predicates",
        "MOV": "move",
        "VIADD": "integer add",
        "UMOV": "uniform move",
        "UIADD3": "uniform add",
        "ULOP3": "uniform logic",
        "ULEA": "uniform shift and add",
        "USEL": "uniform select",
        "USHF": "uniform shift",
        "UISETP": "uniform compare",
        "R2UR": "vector to uniform register",
        "ELECT": "pick one lane",
        "NOP": "no operation",
        "FENCE": "memory or proxy fence",
        "FENCE.TM": "wait for the loads, or the stores, of tensor memory (sm_100)",
        "BRA": "forward branch not taken (cost only)",
        "BSSY": "opens a stretch of code in which fibers may part (cost only)",
    },
    Unit.VARIABLE: {
        "MUFU": "exponential, reciprocal, root, logarithm, sine",
        "HMMA": "mma.sync",
        "SHFL": "lane shuffle",
        "S2R": "read special register",
        "F2F": "scalar conversion",
        "I2F": "integer to float",
        "F2I": "float to integer",
        "LDC": "load constant",
        "DFMA": "fp64 FMA",
    },
    Unit.SHARED: {"LDS": "shared load", "STS": "shared store", "LDSM": "ldmatrix", "STSM": "stmatrix"},
    Unit.GLOBAL: {
        "LDG": "global load",
        "STG": "global store",
        "RED": "global reduction",
        "LDGSTS": "cp.async",
    },
    Unit.GROUP_COMMIT: {"LDGDEPBAR": "commit a cp.async group"},
    Unit.GROUP_WAIT: {"DEPBAR": "wait for cp.async groups"},
    Unit.WGMMA: {"HGMMA": "wgmma, f16/bf16", "QGMMA": "wgmma, fp8"},
    Unit.WGMMA_ARRIVE: {"WARPGROUP.ARRIVE": "order registers before wgmma"},
    Unit.WGMMA_COMMIT: {"WARPGROUP.COMMIT": "commit a wgmma group"},
    Unit.WGMMA_WAIT: {"WARPGROUP.DEPBAR": "wait for wgmma groups"},
    Unit.WGMMA_SIGNAL: {"WARPGROUP.SIGNAL": "arrive when wgmma have read their operands (hypothetical)"},
    Unit.BULK_LOAD: {"UTMALDG": "TMA load"},
    Unit.BULK_STORE: {"UTMASTG": "TMA store", "UTMAREDG": "TMA reduce-add"},
    Unit.BULK_COMMIT: {"UTMACMDFLUSH": "commit a bulk store group"},
    Unit.BULK_WAIT: {"UTMADEPBAR": "wait for bulk store groups"},
    Unit.MBARRIER_EXPECT: {"SYNCS.EXPECT": "arrive and expect bytes"},
    Unit.MBARRIER_ARRIVE: {"SYNCS.ARRIVE": "arrive"},
    Unit.MBARRIER_WAIT: {"SYNCS.TRYWAIT": "wait for a phase"},
    Unit.BARRIER_SYNC: {"BAR.SYNC": "named barrier: arrive and wait"},
    Unit.BARRIER_ARRIVE: {"BAR.ARV": "named barrier: arrive"},
    Unit.CLUSTER_SYNC: {"UCGABAR": "cluster barrier"},
    Unit.TCGEN05_MMA: {"UTCHMMA": "tcgen05.mma f16/bf16", "UTCQMMA": "tcgen05.mma fp8"},
    Unit.TCGEN05_COMMIT: {"UTCBAR": "tcgen05.commit to an mbarrier"},
    Unit.TMEM_LOAD: {"LDTM": "tensor memory to registers"},
    Unit.TMEM_STORE: {"STTM": "registers to tensor memory"},
    Unit.SET_REGISTERS: {"USETMAXREG": "setmaxnreg"},
    Unit.SEM_RELEASE: {"SEM.RELEASE": "add one to a global semaphore"},
    Unit.SEM_ACQUIRE: {"SEM.ACQUIRE": "wait for a global semaphore"},
    Unit.LOOP: {"LOOP": "backward branch"},
    Unit.SKIP: {"SKIP": "branch if the item attribute is zero"},
    Unit.NEXT_ITEM: {"NEXT": "next work item"},
    Unit.EXIT: {"EXIT": "end of the warp"},
    Unit.SET_FIBER_NUM: {"SETFIBER": "set the number of fibers"},
    Unit.BIND: {"DEPBAR.BIND": "bind full and empty bits to the next instruction"},
    Unit.BUSY_BIT: {"DEPBAR.BIT": "set or clear a full or empty bit"},
    Unit.SPLIT: {"BRA.P": "branch of some fibers"},
    Unit.REJOIN: {"BSYNC": "fibers meet again"},
    Unit.BULK_PEER: {"UBLKCP.S.S": "bulk copy from shared memory to that of the other CTA of a pair"},
    Unit.YIELD: {"YIELD": "let the fibers of the other path go on"},
    Unit.WEFT_MMA: {
        "WMMA": "matrix product of a weft, accumulators in registers",
        "WMMA.TM": "matrix product of a weft, accumulators in tensor memory",
    },
}

OPCODES: dict[str, Opcode] = {
    name: Opcode(name, unit, meaning) for unit, names in _TABLE.items() for name, meaning in names.items()
}
"""All opcodes by name."""
