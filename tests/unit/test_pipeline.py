"""Does the flow compile a program once, and another one when anything that decides it is different?"""

from typing import Any

import pytest

from heddle import pipeline
from heddle.ir.tile import TileProgram
from heddle.machine import machine

PARAMS = {"m": 128, "n": 64, "k": 128, "dtype": "fp16"}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count what is compiled; nothing is kept from before."""
    names: list[str] = []

    def compile_program(program: TileProgram, gpu: Any, mode: str = "") -> Any:
        names.append(program.name)
        return object()

    monkeypatch.setattr(pipeline, "warp_program", compile_program)
    monkeypatch.setattr(pipeline, "_COMPILED", {})
    return names


def test_a_program_is_compiled_once(compiled: list[str]) -> None:
    first = pipeline.compile_kernel("gemm", machine("h100"), PARAMS)
    assert pipeline.compile_kernel("gemm", machine("h100"), dict(PARAMS)) is first
    assert len(compiled) == 1


@pytest.mark.parametrize("change", ["params", "machine", "mode"])
def test_what_decides_a_program_compiles_another_one(compiled: list[str], change: str) -> None:
    gpu = machine("h100")
    pipeline.compile_kernel("gemm", gpu, PARAMS)
    other = gpu.replace(sms=gpu.sms - 2) if change == "machine" else gpu
    params = {**PARAMS, "k": 256} if change == "params" else PARAMS
    pipeline.compile_kernel("gemm", other, params, mode="cuda-native" if change == "mode" else "simt")
    assert len(compiled) == 2


def test_only_the_last_programs_are_kept(compiled: list[str]) -> None:
    for k in range(128, 128 + 16 * (pipeline.KEPT_PROGRAMS + 1), 16):
        pipeline.compile_kernel("gemm", machine("h100"), {**PARAMS, "k": k})
    pipeline.compile_kernel("gemm", machine("h100"), PARAMS)
    assert len(compiled) == pipeline.KEPT_PROGRAMS + 2


@pytest.mark.parametrize("mode", ["simt", "cuda-native"])
def test_what_has_no_channels_to_play_is_the_same_for_an_estimate(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_COMPILED", {})
    estimate = pipeline.compile_kernel("gemm", machine("h100+fiber"), PARAMS, mode=mode, played=False)
    assert pipeline.compile_kernel("gemm", machine("h100+fiber"), PARAMS, mode=mode) is estimate
