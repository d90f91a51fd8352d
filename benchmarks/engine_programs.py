"""The programs on which the engine's raw speed is measured: GEMM of three generations and the synthetic `fan` mix."""

from heddle.ir.warp import WarpProgram
from heddle.machine import Machine, machine
from heddle.pipeline import compile_kernel
from heddle.study.bench_programs import fan

GEMM = {"m": 4096, "n": 4096, "k": 4096, "dtype": "fp16"}


def programs() -> list[tuple[str, WarpProgram, Machine]]:
    """Return (name, program, machine) of each benchmark."""
    rows: list[tuple[str, WarpProgram, Machine]] = [
        ("fan", fan(), machine("h100").replace(tensor_port_share=0.0)),
        ("fan, read ports contended", fan(), machine("h100")),
    ]
    for gpu in ("a100", "h100", "b200"):
        device = machine(gpu)
        rows.append((f"gemm {gpu}", compile_kernel("gemm", device, GEMM), device))
    return rows
