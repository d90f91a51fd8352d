"""Is a problem that is too large refused at once, before its work items are made?"""

import pytest

from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.machine import Machine
from heddle.machine.load import machine, with_fiber

HUGE = 100_000_000


def on(gpu: str, mode: str) -> Machine:
    """Return the machine that a mode runs on."""
    return machine(gpu) if mode == "simt" else with_fiber(machine(gpu))


@pytest.mark.parametrize("mode", ["simt", "fiber"])
@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        ("gemm", {"m": HUGE}),
        ("gemm", {"n": HUGE}),
        ("attention", {"seqlen_q": HUGE}),
        ("attention", {"seqlen_q": HUGE, "causal": 1}),
        ("attention", {"batch": HUGE, "seqlen_q": 64}),
        ("attention", {"heads_q": HUGE, "heads_kv": 1, "seqlen_q": 64}),
    ],
)
def test_too_many_work_items_are_refused(gpu: str, mode: str, kernel: str, params: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"work items; at most 500,000"):
        find_kernel(kernel).build(on(gpu, mode), params, mode=mode)
