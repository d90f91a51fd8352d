"""Small tile programs, written by hand from the IR, one a generation, for the tests of the passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heddle.errors import SourceLocation
from heddle.ir import tile as t
from heddle.ir.warp import Count, Tensor, Work

FILE = "tiny.py"


def at(line: int) -> SourceLocation:
    """A line of the pretended kernel file."""
    return SourceLocation(FILE, line)


def work(m: int, n: int, k_blocks: int, tile_m: int, tile_n: int, schedule: str = "static", grid: int = 1) -> Work:
    """One item a tile of C: its corner and its number of k blocks."""
    corners = [(row, col, k_blocks) for row in range(0, m, tile_m) for col in range(0, n, tile_n)]
    items = np.array(corners, dtype=np.int64)
    return Work(attributes=("row", "col", "k_blocks"), items=items, schedule=schedule, grid=grid)  # type: ignore[arg-type]


def tensors(m: int, n: int, k: int, dtype: str = "fp16") -> tuple[Tensor, ...]:
    """A, B and C of a GEMM."""
    return (
        Tensor(name="A", shape=(m, k), dtype=dtype),
        Tensor(name="B", shape=(n, k), dtype=dtype),
        Tensor(name="C", shape=(m, n), dtype=dtype, role="output"),
    )


def boxes(rows: int, cols: int, depth: int) -> tuple[t.GlobalRef, t.GlobalRef, t.GlobalRef]:
    """The boxes of A and B that move with loop `kb`, and that of C."""
    return (
        t.GlobalRef(tensor="A", rows=rows, cols=depth, row="row", loop="kb", col_step=depth),
        t.GlobalRef(tensor="B", rows=cols, cols=depth, row="col", loop="kb", col_step=depth),
        t.GlobalRef(tensor="C", rows=rows, cols=cols, row="row", col="col"),
    )


def hopper(
    m: int = 128, n: int = 64, k: int = 128, tile_m: int = 64, tile_n: int = 64, stages: int = 2
) -> t.TileProgram:
    """H100: a producer warp, one warp group that multiplies, stored by TMA."""
    depth, groups = 64, tile_m // 64
    box_a, box_b, box_c = boxes(tile_m, tile_n, depth)
    a = t.SharedRef(tile="a", rows=tile_m, cols=depth, ring="load")
    b = t.SharedRef(tile="b", rows=tile_n, cols=depth, ring="load")
    out = t.SharedRef(tile="out", rows=tile_m, cols=tile_n)
    full, empty = t.BarrierUse(name="full", ring="load"), t.BarrierUse(name="empty", ring="load")
    count = Count(attribute="k_blocks")
    consumer = t.For(
        name="kb",
        count=count,
        where=at(10),
        body=(
            t.Wait(barrier=full, where=at(11)),
            t.Mma(acc="acc", a=a, b=b, accumulate="first_iteration", loop="kb", where=at(12)),
            t.MmaCommit(where=at(13)),
            t.MmaWait(pending=0, where=at(14)),
            t.Arrive(barrier=empty, where=at(15)),
            t.Advance(rings=("load",), where=at(16)),
        ),
    )
    epilogue = (
        t.TmaStoreWait(where=at(20)),
        t.Sync(id=1, warps=4 * groups, where=at(21)),
        t.StoreShared(dst=out, src="acc", where=at(22)),
        t.Fence(where=at(23)),
        t.Sync(id=1, warps=4 * groups, where=at(24)),
        t.TmaStore(dst=box_c, src=out, where=at(25)),
    )
    producer = t.For(
        name="kb",
        count=count,
        where=at(30),
        body=(
            t.Wait(barrier=replace(empty, flip=True), where=at(31)),
            t.Expect(barrier=full, bytes=(tile_m + tile_n) * depth * 2, where=at(32)),
            t.TmaLoad(dst=a, src=box_a, barrier=full, where=at(33)),
            t.TmaLoad(dst=b, src=box_b, barrier=full, where=at(34)),
            t.Advance(rings=("load",), where=at(35)),
        ),
    )
    start = t.Sync(where=at(5))
    return t.TileProgram(
        name="tiny_sm90",
        architecture="sm_90",
        tensors=tensors(m, n, k),
        shared=(
            t.SharedTile(name="a", rows=tile_m, cols=depth, dtype="fp16", stages=stages),
            t.SharedTile(name="b", rows=tile_n, cols=depth, dtype="fp16", stages=stages),
            t.SharedTile(name="out", rows=tile_m, cols=tile_n, dtype="fp16"),
        ),
        registers=(t.RegisterTile(name="acc", rows=tile_m, cols=tile_n, dtype="fp32", warp_grid=(4 * groups, 1)),),
        barriers=(
            t.Mbarrier(name="full", count=stages, arrivals=1),
            t.Mbarrier(name="empty", count=stages, arrivals=4 * groups),
        ),
        rings=(t.RingDecl(name="load", depth=stages),),
        roles=(
            t.RoleBody(
                name="consumer",
                warps=4 * groups,
                registers=168,
                where=at(4),
                body=(
                    start,
                    t.ForEachItem(body=(consumer, *epilogue), where=at(9)),
                    t.TmaStoreWait(where=at(27)),
                ),
            ),
            t.RoleBody(
                name="producer",
                warps=1,
                registers=40,
                where=at(28),
                body=(start, t.ForEachItem(body=(producer,), where=at(29))),
            ),
        ),
        work=work(m, n, -(-k // depth), tile_m, tile_n),
        flops=2 * m * n * k,
    )


def ampere(
    m: int = 64,
    n: int = 64,
    k: int = 64,
    tile_m: int = 64,
    tile_n: int = 64,
    grid: tuple[int, int] = (2, 2),
    registers: int = 255,
    depth: int = 32,
) -> t.TileProgram:
    """A100: every warp copies, waits, multiplies; one stage ahead of the products."""
    box_a, box_b, box_c = boxes(tile_m, tile_n, depth)
    warps = grid[0] * grid[1]

    def copy(ahead: int, line: int) -> tuple[t.Op, ...]:
        return (
            t.CpAsync(
                dst=t.SharedRef(tile="a", rows=tile_m, cols=depth, ring="write"),
                src=replace(box_a, ahead=ahead, loop="kb" if ahead else None),
                where=at(line),
            ),
            t.CpAsync(
                dst=t.SharedRef(tile="b", rows=tile_n, cols=depth, ring="write"),
                src=replace(box_b, ahead=ahead, loop="kb" if ahead else None),
                where=at(line),
            ),
            t.CpAsyncCommit(where=at(line)),
            t.Advance(rings=("write",), where=at(line)),
        )

    a = t.SharedRef(tile="a", rows=tile_m, cols=depth, ring="read")
    b = t.SharedRef(tile="b", rows=tile_n, cols=depth, ring="read")
    loop = t.For(
        name="kb",
        count=Count(attribute="k_blocks"),
        where=at(8),
        body=(
            t.CpAsyncWait(pending=0, where=at(9)),
            t.Sync(where=at(10)),
            *copy(1, 11),
            t.Mma(acc="acc", a=a, b=b, where=at(12)),
            t.Advance(rings=("read",), where=at(13)),
        ),
    )
    body = (t.Fill(dst="acc", where=at(6)), *copy(0, 7), loop, t.StoreGlobal(dst=box_c, src="acc", where=at(15)))
    return t.TileProgram(
        name="tiny_sm80",
        architecture="sm_80",
        tensors=tensors(m, n, k),
        shared=(
            t.SharedTile(name="a", rows=tile_m, cols=depth, dtype="fp16", stages=2),
            t.SharedTile(name="b", rows=tile_n, cols=depth, dtype="fp16", stages=2),
        ),
        registers=(t.RegisterTile(name="acc", rows=tile_m, cols=tile_n, dtype="fp32", warp_grid=grid),),
        rings=(t.RingDecl(name="write", depth=2), t.RingDecl(name="read", depth=2)),
        roles=(
            t.RoleBody(
                name="worker",
                warps=warps,
                registers=registers,
                where=at(4),
                body=(t.ForEachItem(body=body, where=at(5)),),
            ),
        ),
        work=work(m, n, -(-k // depth), tile_m, tile_n, "launch"),
        flops=2 * m * n * k,
    )


def blackwell(m: int = 128, n: int = 64, k: int = 128, tile_n: int = 64, ctas: int = 1) -> t.TileProgram:
    """B200: one warp loads, one multiplies into tensor memory, four store; with `ctas` 2 a pair shares the products."""
    depth, rows = 64, 128
    box_a, box_b, box_c = boxes(rows, tile_n // ctas, depth)
    box_a, box_b = replace(box_a, cta_row=rows), replace(box_b, cta_row=tile_n // ctas)
    a = t.SharedRef(tile="a", rows=rows, cols=depth, ring="load")
    b = t.SharedRef(tile="b", rows=tile_n // ctas, cols=depth, ring="load")
    acc = t.TmemRef(tile="acc", rows=rows, cols=tile_n, ring="tmem")
    pair = "leader" if ctas > 1 else "own"
    both = "all" if ctas > 1 else "own"
    full, empty = t.BarrierUse(name="full", ring="load", cta=pair), t.BarrierUse(name="empty", ring="load")
    done, free = t.BarrierUse(name="done", ring="tmem"), t.BarrierUse(name="free", ring="tmem", cta=pair)
    count = Count(attribute="k_blocks")
    load = (
        t.Wait(barrier=replace(empty, flip=True), where=at(11)),
        t.Expect(barrier=full, bytes=(rows + tile_n // ctas) * depth * 2, where=at(12)),
        t.TmaLoad(dst=a, src=box_a, barrier=full, where=at(13)),
        t.TmaLoad(dst=b, src=box_b, barrier=full, where=at(14)),
        t.Advance(rings=("load",), where=at(15)),
    )
    multiply = (
        t.Wait(barrier=replace(free, flip=True), where=at(20)),
        t.For(
            name="kb",
            count=count,
            where=at(21),
            body=(
                t.Wait(barrier=full, where=at(22)),
                t.Mma(acc=acc, a=a, b=b, accumulate="first_iteration", loop="kb", ctas=ctas, where=at(23)),
                t.MmaCommit(barrier=replace(empty, cta=both), where=at(24)),
                t.Advance(rings=("load",), where=at(25)),
            ),
        ),
        t.MmaCommit(barrier=replace(done, cta=both), where=at(26)),
        t.Advance(rings=("tmem",), where=at(27)),
    )
    target = replace(box_c, cols=tile_n, cta_row=rows)
    store = (
        t.Wait(barrier=done, where=at(30)),
        t.LoadTensorMemory(dst="part", src=acc, where=at(31)),
        t.Arrive(barrier=free, where=at(32)),
        t.StoreGlobal(dst=target, src="part", where=at(33)),
        t.Advance(rings=("tmem",), where=at(34)),
    )
    start: t.Op = t.ClusterSync(where=at(5)) if ctas > 1 else t.Sync(where=at(5))
    return t.TileProgram(
        name="tiny_sm100",
        architecture="sm_100",
        tensors=tensors(m, n, k),
        shared=(
            t.SharedTile(name="a", rows=rows, cols=depth, dtype="fp16", stages=2),
            t.SharedTile(name="b", rows=tile_n // ctas, cols=depth, dtype="fp16", stages=2),
        ),
        registers=(t.RegisterTile(name="part", rows=rows, cols=tile_n, dtype="fp32", warp_grid=(4, 1)),),
        tensor_memory=(t.TensorMemoryTile(name="acc", rows=rows, cols=tile_n, dtype="fp32", stages=2),),
        barriers=(
            t.Mbarrier(name="full", count=2, arrivals=ctas),
            t.Mbarrier(name="empty", count=2, arrivals=1),
            t.Mbarrier(name="done", count=2, arrivals=1),
            t.Mbarrier(name="free", count=2, arrivals=4 * ctas),
        ),
        rings=(t.RingDecl(name="load", depth=2), t.RingDecl(name="tmem", depth=2)),
        roles=(
            t.RoleBody(name="epilogue", warps=4, registers=168, where=at(29), body=(start, t.ForEachItem(body=store))),
            t.RoleBody(
                name="load",
                warps=1,
                registers=168,
                where=at(10),
                body=(start, t.ForEachItem(body=(t.For(name="kb", count=count, body=load, where=at(10)),))),
            ),
            t.RoleBody(
                name="mma",
                warps=1,
                registers=168,
                where=at(19),
                leader_only=ctas > 1,
                body=(start, t.ForEachItem(body=multiply)),
            ),
        ),
        work=work(m, n, -(-k // depth), rows * ctas, tile_n),
        cluster_size=ctas,
        flops=2 * m * n * k,
    )
