"""W4A16 on A100 with FIBER: wefts of their own make weights fp16, in shared vector registers; four wefts multiply.

Four wefts load A as in the FIBER-native GEMM. Four load packed weights from global memory, the part of a block along k
that lies in their subpartition, and unpack them (AWQ), or look them up (AQLM), into registers there, once for the SM.
Four multiply by weft-level products in lockstep: A from their own subpartition, the weights from one of the four. Bits
order each fragment: weights of one part are made while the products of the other three run.

Where registers are shared inside a subpartition only, each weft multiplies the columns whose weights lie in its own:
these are made once, too. A is in all four, loaded from shared memory by each one's own weft.
"""

from __future__ import annotations

from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.gemm.sm80_fiber import GROUP, LOAD_REGISTERS, STEP_K, FiberGemm80, Operand, Sharing, sum_registers
from heddle.kernels.w4a16.items import WORD, code_bytes
from heddle.kernels.w4a16.makers import ALONG_K, BY_ROWS, AqlmMaker, AwqMaker, Target, maker_items
from heddle.kernels.w4a16.shape import BOOKS, W4Problem
from heddle.lang import Builder, RegisterHandle, kernel

MAKE_REGISTERS = 24
"""Temporaries and addresses of a weft that makes weights, beside codes, scales and zero points."""
IN_FLIGHT_REGISTERS = 16
"""Of four entries on their way, of each codebook."""


def block_k(problem: W4Problem, sharing: Sharing = "sm", steps: int = GROUP) -> int:
    """Return the columns of a block: `steps` of 16; or four quarters, each one step or two, which an entry fills."""
    if sharing == "subpartition":
        return steps * STEP_K
    return GROUP * STEP_K * (2 if problem.looks_up else 1)


def weight_registers(problem: W4Problem, part_n: int, part_k: int) -> int:
    """Return the registers of a weft that makes a part of a block: codes, scales, zero points, entries."""
    codes = part_n * part_k // WORD * code_bytes(problem) // (LANES * REGISTER_BYTES)
    if problem.looks_up:
        return codes + part_n // 16 + IN_FLIGHT_REGISTERS * BOOKS[problem.scheme] + MAKE_REGISTERS
    return codes + 4 * part_n // 16 + MAKE_REGISTERS


@kernel
def w4_sm80_fiber(k: Builder, problem: W4Problem, p: FiberGemm80, steps: int = GROUP) -> None:
    """Persistent over the tiles of C; `p` is the same product with fp16 weights; `steps`: see `block_k`."""
    k.flops = problem.flops
    tile_k, own = block_k(problem, p.sharing, steps), p.sharing == "subpartition"
    part = (p.tile_n // GROUP, tile_k) if own else (p.tile_n, tile_k // GROUP)
    items = p.items(tile_k)
    k.work_items(items | maker_items(problem, items["col"]), clusters=p.fiber_threads)
    a = Operand(k, p, "A", (1, GROUP) if own else (GROUP, 1), "own", tile_k)
    weights = _weights(k, problem, p, tile_k)
    made = (k, problem, [Target(weights, 0)], p.tile_n, tile_k, BY_ROWS if own else ALONG_K)
    maker = AqlmMaker(*made) if problem.looks_up else AwqMaker(*made)
    c_global = k.tensor("C", (p.m, p.n), p.dtype, role="output")
    total = k.registers("total", (p.tile_m, p.tile_n), "fp32", warps=(1, GROUP) if own else (GROUP, 1))

    k.set_fiber_num(begin=1, load_a=GROUP, weights=GROUP, multiply=GROUP)

    with k.role("begin", registers=GROUP):  # the weft that a FIBER-thread starts with
        pass

    with k.role("load_a", window=0, registers=LOAD_REGISTERS):
        for item in k.work():
            a.load(item, item.row)

    with k.role("weights", window=0, registers=weight_registers(problem, *part)):
        maker.begin()
        for item in k.work():
            maker.make(item)

    with k.role("multiply", window=1, registers=sum_registers(p.tile_m, p.tile_n)):
        for item in k.work():
            k.fill(total)
            for _ in k.range(item.k_blocks):
                k.mma(total, a.fragments, weights)
                k.set_busy_bit(a.fragments, "empty")
                k.set_busy_bit(weights, "empty")
            k.store(c_global[item.row, item.col], total)


def _weights(k: Builder, problem: W4Problem, p: FiberGemm80, tile_k: int) -> RegisterHandle:
    """Declare the weights of a block: for all subpartitions, a part along k in each, or each one's columns."""
    shape = (p.tile_n, tile_k)
    if p.sharing == "sm":
        return k.pool("b", shape, problem.dtype, read_by="all", wefts=(1, GROUP))[0]
    return k.pool("b", shape, problem.dtype, wefts=(GROUP, 1), spread="operand")[0]
