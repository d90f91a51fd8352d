"""Programs whose words are tested: kernels compiled at small sizes, and rows written by hand."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import parse_program
from heddle.kernels.registry import KERNELS
from heddle.machine.load import machine
from heddle.study.checks import check_sizes
from heddle.study.runs import request

GPUS = ("a100", "h100", "b200")
HEAD = {
    "simt": "warp_program hand architecture={architecture}\nwork launch grid=1 attributes=[first, many]\nitem 0 2\n"
    "role all first_warp=0 warps=4 entry=start registers_per_thread=64\n",
    "fiber": "warp_program hand architecture={architecture} mode=fiber "
    "fiber=400(pool_first=32, pool_limit=300)\n"
    "work launch grid=1 attributes=[first, many]\nitem 0 2\n"
    "role low first_warp=0 warps=4 entry=start registers_per_thread=64\n"
    "role high first_warp=4 warps=4 entry=high registers_per_thread=64 base=256\n",
}


@cache
def compiled(kernel: str, gpu: str, mode: str, last: bool = False, **texts: Any) -> WarpProgram:
    """Compile a kernel at the sizes of `heddle check` with its first candidate, or the last one."""
    asked = request(kernel, gpu, mode=mode, texts=check_sizes(kernel, dict(texts)))
    candidates = KERNELS[kernel].candidates(asked.machine, asked.params, mode)
    return pipeline.compile_kernel(
        kernel, asked.machine, asked.params, candidates[-1 if last else 0], mode, played=False
    )


def every_kernel(dtype: str = "") -> Iterator[tuple[str, str, str, WarpProgram]]:
    """Yield each registered kernel that a GPU runs in the modes simt and fiber, with the first and last candidate."""
    for kernel in KERNELS:
        for gpu in GPUS:
            for mode in ("simt", "fiber"):
                for last in (False, True):
                    try:
                        yield (
                            kernel,
                            gpu,
                            mode,
                            compiled(kernel, gpu, mode, last, **({"dtype": dtype} if dtype else {})),
                        )
                    except UserError:  # it does not run there, or not with these numbers
                        break


def by_hand(code: str, mode: str = "simt", architecture: str = "sm_90", declared: str = "") -> WarpProgram:
    """Return a program of these rows, the labels `start` and, in mode fiber, `high` in front of roles."""
    rows = [line for line in code.splitlines() if line.strip()]
    lines = [row if row.rstrip().endswith(":") else f"  {row.strip()}" for row in rows]
    tail = "" if mode == "simt" else "\nhigh:\n  [B------:R-:W-:S01] EXIT"
    head = HEAD[mode].format(architecture=architecture)
    return parse_program(f"{head}{declared}code\nstart:\n" + "\n".join(lines) + f"\n  [B------:R-:W-:S01] EXIT{tail}\n")


__all__ = ["by_hand", "compiled", "every_kernel", "machine"]
