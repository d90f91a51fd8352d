"""`heddle compare --all`: the table of the paper's workloads on all GPUs; what is stored is not simulated again.

The lines come in an order in which a run that is stopped has the most to show: the paper's batch first, then the other
workloads, the largest batch last. A line that fails keeps its place, with the reason, and the others go on; so does one
whose workload is not there for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.errors import HeddleError, UserError
from heddle.machine.load import available
from heddle.machine.load import machine as load_machine
from heddle.machine.spec import Machine
from heddle.study import composites
from heddle.study.compare import compare
from heddle.study.pool import Progress, run_all
from heddle.study.requests import request

BATCHES = (8, 1, 32)
"""8 is called the paper's setting; the paper states no batch."""
SIZES = {"heads_q": 32, "seqlen_q": 4096, "head_dim": 128}
HEADS_KV = {"MHA": 32, "GQA": 4, "MQA": 1}
GEMM_SIDE = 4096
MODEL = {"model": "llama-3-8b"}
"""Whose projection, FFN and layers are compared, at 4,096 tokens."""
WORKLOADS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("projection", "projection", {**MODEL, "tokens": 4096}),
    ("FFN", "ffn", {**MODEL, "tokens": 4096}),
    ("AWQ 4096", "w4a16", dict.fromkeys("mnk", GEMM_SIDE)),
    ("AQLM 1x16 4096", "w4a16", {**dict.fromkeys("mnk", GEMM_SIDE), "scheme": "aqlm_1x16"}),
    ("AQLM 2x8 4096", "w4a16", {**dict.fromkeys("mnk", GEMM_SIDE), "scheme": "aqlm_2x8"}),
    ("mixed FFN", "ffn", {**MODEL, "tokens": 4096, "weights": "awq"}),
    ("decode GQA B16", "decode_attention", {"batch": 16, "heads_q": 32, "heads_kv": 4, "seqlen_kv": 4096}),
    ("backward MHA full B1", "attention", {**SIZES, "batch": 1, "direction": "bwd"}),
    ("backward MHA causal B1", "attention", {**SIZES, "batch": 1, "causal": 1, "direction": "bwd"}),
    ("Llama FP16", "llama", {**MODEL, "seqlen": 4096}),
    ("Llama W4A16", "llama", {**MODEL, "seqlen": 4096, "precision": "w4a16"}),
)
"""Beside attention and GEMM: name, kernel, parameters."""
PRESETS = ("a100", "h100", "b200")
UNCERTAIN = "h100"
L2_BYTES_PER_CYCLE_PER_SM = (35.0, 42.0)
"""What an SM of the H100 gets from L2 is uncertain in these bounds: docs/explanation/memory.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table."""

    name: str
    kernel: str
    machine: Machine
    params: tuple[tuple[str, Any], ...]


def compare_all(gpu: str | None = None, *, jobs: int | None = None, progress: Progress | None = None) -> list[Any]:
    """Return all comparisons, of one preset if `gpu` names it, each with `case` added. Raises UserError.

    A comparison that fails has `case`, `kernel`, `gpu` and `failed`, the reason, in place of all else; where not even
    today's form is there, `missing` in place of `failed`.
    """
    cases = list(all_cases(gpu))
    return run_all(_answer, cases, jobs=jobs, progress=progress)


def all_cases(gpu: str | None = None) -> Iterator[Case]:
    """Yield the lines of the table."""
    if gpu is not None and gpu not in PRESETS:
        raise UserError(
            f"--all compares on {', '.join(PRESETS)}; got {gpu!r}", hint=f"presets: {', '.join(available())}"
        )
    for name in PRESETS if gpu is None else (gpu,):
        machine = load_machine(name)
        first, *others = BATCHES
        yield from _attention(machine, first)
        for workload, kernel, params in WORKLOADS:
            yield Case(name=workload, kernel=kernel, machine=machine, params=tuple(params.items()))
        for batch in others:
            yield from _attention(machine, batch)
        yield _gemm(machine)
        if name == UNCERTAIN:
            yield from _other_rates(machine)


def _gemm(machine: Machine) -> Case:
    side = dict.fromkeys(("m", "n", "k"), GEMM_SIDE)
    return Case(name=f"gemm {GEMM_SIDE}", kernel="gemm", machine=machine, params=tuple(side.items()))


def _other_rates(machine: Machine) -> Iterator[Case]:
    """Yield the lines with other rates of L2, of the least batch alone: cycles change by at most 0.3 % at any."""
    for rate in L2_BYTES_PER_CYCLE_PER_SM:
        other = machine.replace(l2_bytes_per_cycle_per_sm=rate, name=f"{machine.name} L2 {rate:g} B")
        yield from _attention(other, min(BATCHES))
        yield _gemm(other)


def _attention(machine: Machine, batch: int) -> Iterator[Case]:
    for heads, count in HEADS_KV.items():
        for causal in (0, 1):
            params = {**SIZES, "heads_kv": count, "causal": causal, "batch": batch}
            name = f"attention {heads} {'causal' if causal else 'full'} B{batch}"
            yield Case(name=name, kernel="attention", machine=machine, params=tuple(params.items()))


def _answer(case: Case) -> dict[str, Any]:
    named = {"case": case.name, "kernel": case.kernel, "gpu": case.machine.name}
    try:
        asked = request(case.kernel, case.machine, texts=dict(case.params))
        if composites.composite(asked) is not None:
            composites.questions(asked)
    except UserError as error:
        return {**named, "missing": error.message.partition("\n")[0]}
    try:
        return {**named, **compare(case.kernel, case.machine, jobs=1, texts=dict(case.params))}
    except HeddleError as error:
        return {**named, "failed": error.message.partition("\n")[0]}
