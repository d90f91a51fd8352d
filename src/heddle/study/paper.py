"""The paper's own figures, shown beside ours; no simulation reads them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heddle.kernels.model.shapes import models

TABLE = Path(__file__).parent / "paper.toml"
GQA_GROUP = 8
"""Query heads of a key and value head in the paper's GQA."""
FAMILY = "llama"
"""The models whose sizes the paper takes."""
Figure = Mapping[str, Any]


@functools.cache
def figures() -> Mapping[str, Any]:
    """Return what the paper states, by workload."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def figure(kernel: str, architecture: str, params: Mapping[str, Any]) -> Figure:
    """Return the paper's figure for a question (`speedup`, `where`), empty where the paper has none."""
    family, name = _entry(kernel, params)
    found: Figure = figures().get(family, {}).get(name, {}).get(architecture, {})
    return dict(found)


def _entry(kernel: str, params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the section of the table that a question belongs to, empty names where there is none."""
    if kernel in ("ffn", "projection", "llama"):
        return _model_part(kernel, params)
    if kernel in ("gemm", "w4a16"):
        return _product(kernel, params)
    if kernel not in ("attention", "decode_attention") or not _at_the_papers_size(params):
        return "", ""
    if kernel == "decode_attention":
        return "decode", "sequence"
    directions = {"fwd": ("attention", heads(params)), "bwd": ("backward", "sequence")}
    return directions.get(params.get("direction", "fwd"), ("", ""))


def _product(kernel: str, params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the section of a product by a square weight of a model; a gated one is a part of an FFN, as a whole."""
    hidden = {model.hidden for name, model in models().items() if name.startswith(FAMILY)}
    if params["n"] != params["k"] or params["k"] not in hidden or not _whole_contexts(params["m"]):
        return "", ""
    if kernel == "w4a16":
        return "w4a16", "awq" if params["scheme"] == "awq" else "aqlm"
    return ("", "") if params["epilogue"] == "silu_mul" else ("gemm", "projection")


def _whole_contexts(rows: int) -> bool:
    """Tell whether there are as many tokens as in some sequences of the paper's length; it states no batch."""
    return rows % int(figures()["attention"]["seqlen"]) == 0


def _model_part(kernel: str, params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the section of a sequence: the paper's are of prefill, and it has no projection by quantised weights."""
    seqlen = figures()["attention"]["seqlen"]
    its_size = params["seqlen"] == seqlen if kernel == "llama" else _whole_contexts(params["tokens"])
    if not params["model"].startswith(FAMILY) or not its_size:
        return "", ""
    mixed = params.get("weights", "plain") != "plain" or params.get("precision") == "w4a16"
    if params.get("phase") == "decode":
        return "", ""
    return "sequence", f"{kernel}_w4a16" if mixed else kernel


def profile_figures(kernel: str, architecture: str, mode: str) -> Figure:
    """Return what the paper says of today's attention kernel beside its speed (`share`, `what`, `where` by name)."""
    if kernel != "attention" or mode != "simt":
        return {}
    found: Figure = figures()["profile"].get(architecture, {})
    return found


def heads(params: Mapping[str, Any]) -> str:
    """Return mha, gqa or mqa as the paper uses the words, an empty string for another grouping."""
    group = params["heads_q"] // params["heads_kv"]
    if params["heads_kv"] == 1 and group > 1:
        return "mqa"
    return {1: "mha", GQA_GROUP: "gqa"}.get(group, "")


def _at_the_papers_size(params: Mapping[str, Any]) -> bool:
    setting = figures()["attention"]
    queries = params["seqlen_q"]
    sizes = {queries if queries > 1 else params["seqlen_kv"], params["seqlen_kv"]}
    return sizes == {setting["seqlen"]} and params["head_dim"] == setting["head_dim"]


def ablation_figures(kernel: str, architecture: str, params: Mapping[str, Any]) -> Figure:
    """Return what the paper says of the parts of a workload's gain: shares by feature, or `words`, and `where`."""
    family, name = _entry(kernel, params)
    found: Figure = figures()["ablation"].get(family, {}).get(name, {}).get(architecture, {})
    return dict(found)


def oracle_speedup(architecture: str, names: Sequence[str]) -> float | None:
    """Return the paper's speed-up of one oracle on FlashAttention 3; it has none of several together."""
    found = figures()["oracle"].get(architecture, {}) if len(names) == 1 else {}
    return float(found[names[0]]["speedup"]) if found else None


def gtsim_error(off: Sequence[str]) -> float | None:
    """Return the error that GTSim publishes without the edges of a switch, in per cent."""
    switched = figures()["gtsim"]["switches"]
    known = {("order",): "order", ("barriers",): "barriers", ("order", "barriers"): "both"}
    return float(switched[known[tuple(off)]]) if tuple(off) in known else None
