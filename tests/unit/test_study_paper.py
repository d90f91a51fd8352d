"""Does the paper's figure stand beside the workload that it is of, and beside no other?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.kernels.registry import find_entry
from heddle.study.paper import figure

ATTENTION = {"seqlen_q": 4096, "heads_q": 32, "heads_kv": 32}


@pytest.mark.parametrize(("kernel", "given", "speedup"), [
    ("attention", ATTENTION, 1.42),
    ("attention", {**ATTENTION, "direction": "bwd"}, 1.54),
    ("attention", {**ATTENTION, "direction": "fwd+bwd"}, None),
    ("attention", {**ATTENTION, "seqlen_q": 2048, "direction": "bwd"}, None),
    ("decode_attention", {"seqlen_kv": 4096}, 1.12),
    ("decode_attention", {"seqlen_kv": 8192}, None),
    ("ffn", {}, 1.1),
    ("ffn", {"tokens": 1}, None),
    ("ffn", {"model": "tiny"}, None),
    ("ffn", {"weights": "awq"}, 2.49),
    ("projection", {"tokens": 8192}, 1.1),
    ("projection", {"weights": "awq"}, None),
    ("w4a16", {"scheme": "aqlm_2x8"}, 1.88),
    ("w4a16", {"m": 1}, None),
    ("w4a16", {"n": 128, "k": 128}, None),
    ("gemm", {"m": 4096, "n": 4096, "k": 4096}, 1.1),
    ("gemm", {"m": 4096, "n": 512, "k": 512}, None),
    ("llama", {}, 1.15),
    ("llama", {"precision": "w4a16"}, 2.25),
    ("llama", {"phase": "decode"}, None),
    ("llama", {"seqlen": 2048}, None),
])  # fmt: skip
def test_the_figure_is_that_of_the_workload(kernel: str, given: dict[str, Any], speedup: float | None) -> None:
    assert figure(kernel, "sm_80", find_entry(kernel).check(given)).get("speedup") == speedup
