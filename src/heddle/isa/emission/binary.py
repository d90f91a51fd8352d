"""A compiled kernel as a file: code, FIBER note, and the note with what words cannot carry; and back."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import FIBERS
from heddle.isa.cubin.cubin import Cubin, Function
from heddle.isa.cubin.note import FiberKernel, Role, note_section, read_note
from heddle.isa.emission.container import INSTRUCTION_BYTES, PROGRAM_NOTE, Section, kernel_file, note_text
from heddle.isa.emission.note import program_of, words_and_note

LAYOUT = "heddle"
MOST_REGISTERS = 255
"""That .nv.info can state; what a FIBER-thread takes is in the FIBER note."""


def cubin_bytes(program: WarpProgram) -> bytes:
    """Return the file of a program. Raises UserError or UnsupportedError for what has no encoding."""
    words, note = words_and_note(program, LAYOUT)
    registers = max((role.registers_per_thread for role in program.roles), default=0)
    return kernel_file(
        program.name, program.architecture, words, min(registers, MOST_REGISTERS), note, _fiber_sections(program)
    )


def compiled_program(cubin: Cubin, name: str | None = None) -> WarpProgram:
    """Return the program of a file that `cubin_bytes` made; `name`: of its kernel, for a check.

    Raises UserError for another file, and where words and notes contradict each other.
    """
    kernel = _only_kernel(cubin) if name is None else cubin.kernel(name)
    note = cubin.elf.named(PROGRAM_NOTE)
    text = note_text(note.data) if note is not None else None
    if text is None:
        raise UserError(
            f"{cubin.what} has no note of a compiled kernel ({PROGRAM_NOTE})",
            hint="`heddle compile KERNEL --gpu G -o FILE.cubin` writes one",
        )
    start = kernel.start // INSTRUCTION_BYTES
    words = cubin.words(kernel.section)[start : start + kernel.size // INSTRUCTION_BYTES]
    program = program_of(words, text.decode("utf-8", "replace"), f"{cubin.what}: {PROGRAM_NOTE}", LAYOUT)
    _check(cubin, program)
    return program


def is_compiled(cubin: Cubin) -> bool:
    """Tell whether a file is one of a compiled kernel."""
    return cubin.elf.named(PROGRAM_NOTE) is not None


def fiber_kernel(program: WarpProgram) -> FiberKernel | None:
    """Return what the FIBER note says of a program: pool, registers, role table; None in mode simt."""
    if program.mode == "simt":
        return None
    roles = tuple(
        Role(role.first_warp, role.first_warp + role.warps - 1, role.base, role.entry * INSTRUCTION_BYTES)
        for role in program.roles
    )
    fibers, taken = FIBERS * program.warps_per_cta, program.fiber
    if taken is None:
        return FiberKernel(program.name, program.mode, fibers, LAYOUT, roles=roles)
    pool = taken.pool_first, taken.pool_limit
    return FiberKernel(program.name, program.mode, fibers, LAYOUT, *pool, taken.registers, roles)


def _fiber_sections(program: WarpProgram) -> tuple[Section, ...]:
    kernel = fiber_kernel(program)
    if kernel is None:
        return ()
    section = note_section([kernel])
    return (Section(name=section.name, type=section.type, data=section.data, alignment=section.alignment),)


def _only_kernel(cubin: Cubin) -> Function:
    if len(cubin.kernels) != 1:
        names = ", ".join(kernel.name for kernel in cubin.kernels) or "none"
        raise UserError(f"{cubin.what} has {len(cubin.kernels)} kernels ({names}); a compiled one has one")
    return cubin.kernels[0]


def _check(cubin: Cubin, program: WarpProgram) -> None:
    """Raise UserError where the FIBER note says something else than the program, or the kernel has another name."""
    wanted = fiber_kernel(program)
    found = read_note(cubin)
    if found != (() if wanted is None else (wanted,)):
        raise UserError(f"{cubin.what}: the FIBER note does not fit the program: {found} against {wanted}")
    if cubin.architecture != program.architecture or _only_kernel(cubin).name != program.name:
        raise UserError(f"{cubin.what}: its kernel is not {program.name} for {program.architecture}, as its note says")
