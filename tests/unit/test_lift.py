"""Does machine code become the warp program that it is, as far as it is modelled, and does that run?"""

from dataclasses import replace
from pathlib import Path

import pytest

from cubins import own_cubin
from emission_programs import by_hand, compiled
from heddle import sim
from heddle.errors import UserError
from heddle.frontends.sass.branches import Branch, enters_a_loop, loop_levels
from heddle.frontends.sass.lift import Lifted, lift
from heddle.ir.warp import RZ, Count, Instruction, Register, WarpProgram
from heddle.ir.warp_verify import verify
from heddle.isa.cubin.cubin import Cubin, parse_cubin, read_cubin
from heddle.isa.cubin.patch import patch_entry
from heddle.isa.emission.container import kernel_file
from heddle.isa.emission.encode import program_words
from heddle.isa.words import from_ints, put_bits, to_ints
from heddle.machine.load import machine, with_fiber

pytest.importorskip("elftools", reason="reading cubins needs the extra sass")
PLAIN = "[B------:R-:W-:S01]"
GPUS = {"sm_80": "a100", "sm_90a": "h100", "sm_100a": "b200"}
GEMM = "_Z4gemmPfPKcS1_i"
SAME = {"NOP", "WARPGROUP.COMMIT", "SEM.RELEASE", "SEM.ACQUIRE", "PLOP3", "LDC"}
"""Rows whose words say less than the row, or mean another one in NVIDIA's code."""


def cubin_of(program: WarpProgram, words: list[int] | None = None) -> Cubin:
    """Return a cubin with the words of a program and without its note."""
    code = program_words(program) if words is None else from_ints(words)
    return parse_cubin(kernel_file(program.name, program.architecture, code, 64, ""))


def lifted(code: str, architecture: str = "sm_90", **options: int) -> Lifted:
    """Lift rows written by hand."""
    return lift(cubin_of(by_hand(code, architecture=architecture)), **{"warps": 4, **options})  # type: ignore[arg-type]


def said(row: Instruction) -> tuple[object, ...]:
    """Return what words say of a row on vector registers, without zero registers and operand cache bits."""
    sources = tuple(replace(register, reuse=False) for register in row.src if register.index != RZ)
    return row.op, row.dst, sources, row.control


@pytest.mark.parametrize(("kernel", "gpu"), [("rmsnorm", "a100"), ("gemm", "a100"), ("rmsnorm", "b200")])
def test_words_of_compiled_kernels_are_lifted_to_their_rows(kernel: str, gpu: str) -> None:
    program = compiled(kernel, gpu, "simt")
    rows = lift(cubin_of(program), warps=program.warps_per_cta).program.instructions
    wrong = [
        (pc, said(row), said(rows[pc]))
        for pc, row in enumerate(program.instructions)
        if row.target is None and row.op not in SAME and row.by == "warp" and said(row) != said(rows[pc])
    ]
    assert wrong == []


def test_a_changed_register_is_seen() -> None:
    program = by_hand(f"{PLAIN} FFMA R8 = R4, R5, R6")
    words = to_ints(program_words(program))
    changed = [put_bits(words[0], 71, 64, 7), *words[1:]]
    assert lift(cubin_of(program, changed), warps=4).program.instructions[0].src[2] == Register(7)


def test_what_is_not_modelled_is_counted() -> None:
    program = by_hand(f"{PLAIN} NOP\n{PLAIN} NOP")
    words = to_ints(program_words(program))
    found = lift(cubin_of(program, [put_bits(words[0], 11, 0, 0x983), *words[1:]]), warps=4)
    assert found.unmodelled == {"LDL": 1}
    assert found.program.instructions[0].op == "NOP"


def test_a_branch_back_is_a_loop_of_so_many_rounds() -> None:
    row = lifted(f"{PLAIN} NOP\n{PLAIN} LOOP count=many -> start", trips=7).program.instructions[1]
    assert (row.op, row.count, row.target, row.level) == ("LOOP", Count(7), 0, 0)


def test_loops_inside_of_loops_have_levels() -> None:
    found = {at: Branch(at, target, True) for at, target in ((9, 0), (5, 2), (7, 1), (20, 15))}
    assert loop_levels(found) == {9: 0, 7: 1, 5: 2, 20: 0}


def test_a_branch_that_alone_leads_to_a_loop_is_taken() -> None:
    enters, leaps, loop = Branch(0, 3, True), Branch(2, 9, False), Branch(6, 4, True)
    assert enters_a_loop(enters, {0: enters, 2: leaps, 6: loop}, [])
    assert not enters_a_loop(enters, {0: enters, 6: loop}, [])
    assert enters_a_loop(enters, {0: enters, 6: loop}, [2])


def test_a_kernel_without_a_size_of_block_asks_for_it() -> None:
    with pytest.raises(UserError, match="--warps"):
        lifted(f"{PLAIN} NOP", warps=0)


def test_an_offset_without_a_branch_is_refused() -> None:
    with pytest.raises(UserError, match="no conditional branch forward at 0x10"):
        lift(cubin_of(by_hand(f"{PLAIN} NOP")), warps=4, take=[0x10])


@pytest.mark.parametrize(
    "architecture", ["sm_80", *(pytest.param(one, marks=pytest.mark.slow) for one in ("sm_90a", "sm_100a"))]
)
def test_a_gemm_of_nvidias_compiler_is_modelled_and_runs(architecture: str) -> None:
    gpu = machine(GPUS[architecture])
    found = lift(read_cubin(own_cubin("mma", architecture)), GEMM, warps=4, ctas=2, trips=3)
    assert found.unmodelled == {}
    verify(found.program, gpu)
    result = sim.simulate(found.program, gpu, mode="sm", clock_mhz=1000, l2_state="warm")
    assert result.tensor_busy_cycles > 0


def test_more_rounds_take_longer() -> None:
    cubin, gpu = read_cubin(own_cubin("mma", "sm_80")), machine("a100")
    programs = [lift(cubin, GEMM, warps=4, trips=trips).program for trips in (2, 20)]
    few, many = (sim.simulate(p, gpu, mode="sm", clock_mhz=1000, l2_state="warm").cycles for p in programs)
    assert many > 2 * few


def test_a_patched_cubin_runs_cuda_native() -> None:
    original = read_cubin(own_cubin("mma", "sm_80"))
    patched = parse_cubin(patch_entry(original, fibers=128).data)
    before = lift(original, GEMM, warps=4, trips=3).program
    after = lift(patched, GEMM, trips=3).program
    gpu = with_fiber(machine("a100"))
    verify(after, gpu)
    assert (after.mode, after.warps_per_cta, after.instructions[0].op) == ("cuda-native", 4, "SETFIBER")
    kept = [said(row) for row in before.instructions[:-2]]  # one of the NOPs behind the code made room
    assert [said(row) for row in after.instructions[1 : len(kept) + 1]] == kept
    took = [sim.simulate(p, gpu, mode="sm", clock_mhz=1000, l2_state="warm").cycles for p in (before, after)]
    assert took[1] > took[0]


def test_the_command_lifts_and_simulates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heddle.cli import main

    path = own_cubin("mma", "sm_80")
    code = main(
        ["lift", str(path), "--kernel", GEMM, "--warps", "4", "--gpu", "a100", "-o", str(tmp_path / "gemm.warp")]
    )
    assert code == 0
    assert "not modelled: none" in capsys.readouterr().out
    assert (tmp_path / "gemm.warp").read_text().startswith("warp_program")


@pytest.mark.slow
def test_the_command_gives_a_compiled_kernel_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heddle.cli import main
    from heddle.ir.warp_text import read_program

    path, text = tmp_path / "k.cubin", tmp_path / "k.warp"
    assert main(["compile", "rmsnorm", "--gpu", "a100", "--set", "rows=64", "hidden=512", "-o", str(path)]) == 0
    assert main(["lift", str(path), "-o", str(text), "--gpu", "a100"]) == 0
    assert read_program(text).name == "rmsnorm"
    assert "cycles" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("architecture", GPUS)
@pytest.mark.parametrize("name", ["control", "memory", "mma", "wgmma", "tcgen05"])
def test_every_own_kernel_becomes_a_program_that_the_simulator_accepts(name: str, architecture: str) -> None:
    if (name == "wgmma" and architecture != "sm_90a") or (name == "tcgen05" and architecture != "sm_100a"):
        pytest.skip("the other generation has other instructions")
    cubin, gpu = read_cubin(own_cubin(name, architecture)), machine(GPUS[architecture])
    for kernel in cubin.kernels:
        found = lift(cubin, kernel.name, warps=4, trips=2)
        verify(found.program, gpu)
        assert sim.simulate(found.program, gpu, mode="sm", clock_mhz=1000, l2_state="warm").cycles > 0
