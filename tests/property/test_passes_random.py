"""Do random tile programs compile, and do the verifiers of allocation and control fields accept the result?

Both verifiers run inside the pipeline; an InternalError fails the test, a UserError must name its reason.
"""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import passes_programs as tiny
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.machine import machine
from heddle.passes import compile_program

MACHINES = {name: machine(name) for name in ("a100", "h100", "b200")}
slow = settings(max_examples=12, deadline=None)


def check(program: WarpProgram) -> None:
    """What must hold of any compiled program."""
    for role in program.roles:
        assert 0 <= role.entry < len(program.instructions)
    for row in program.instructions:
        budget = max(role.registers_per_thread for role in program.roles)
        for register in (*((row.dst,) if row.dst else ()), *row.src):
            assert 0 <= register.index <= register.index + register.count <= budget
        assert 1 <= row.control.stall <= 15
    for stream in program.streams:
        base = program.work.items[:, program.work.attributes.index(stream.base)]
        assert (base >= 0).all()
        assert (base < stream.blocks).all()


@slow
@given(
    m=st.integers(1, 300),
    n=st.integers(8, 300),
    k_blocks=st.integers(1, 5),
    rows=st.sampled_from([1, 2]),
    cols=st.sampled_from([8, 16, 64, 128, 256]),
    stages=st.integers(1, 4),
)
def test_hopper_programs(m: int, n: int, k_blocks: int, rows: int, cols: int, stages: int) -> None:
    n -= n % 8  # rows of C must be multiples of 16 bytes
    assume(rows * cols <= 512)
    tiles = stages * 64 * (64 * rows + cols) * 2 + 64 * rows * cols * 2
    assume(tiles < MACHINES["h100"].shared_memory_bytes_per_cta)
    program = tiny.hopper(m=m, n=n, k=64 * k_blocks, tile_m=64 * rows, tile_n=cols, stages=stages)
    check(compile_program(program, MACHINES["h100"]))


@slow
@given(
    m=st.integers(1, 300),
    n=st.integers(1, 300),
    k=st.integers(1, 200),
    grid=st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 2)]),
    atoms=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    depth=st.sampled_from([16, 32, 64]),
    registers=st.sampled_from([96, 168, 255]),
)
def test_ampere_programs(
    m: int, n: int, k: int, grid: tuple[int, int], atoms: tuple[int, int], depth: int, registers: int
) -> None:
    tile_m, tile_n = 16 * grid[0] * atoms[0], 16 * grid[1] * atoms[1]
    program = tiny.ampere(m, n, k, tile_m, tile_n, grid, registers, depth)
    reason = ""
    try:
        check(compile_program(program, MACHINES["a100"]))
    except UserError as error:
        reason = str(error)
    assert not reason or any(word in reason for word in ("spills", "does not divide", "do not divide"))


@slow
@given(
    m=st.integers(1, 600),
    n=st.integers(8, 300),
    k_blocks=st.integers(1, 5),
    cols=st.sampled_from([16, 32, 64, 128]),
    ctas=st.sampled_from([1, 2]),
)
def test_blackwell_programs(m: int, n: int, k_blocks: int, cols: int, ctas: int) -> None:
    assume(cols * ctas <= 128)  # a warp holds a row a lane: more columns do not fit the budget
    program = tiny.blackwell(m=m, n=n, k=64 * k_blocks, tile_n=cols * ctas, ctas=ctas)
    check(compile_program(program, MACHINES["b200"]))
