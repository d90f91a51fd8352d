"""Checks attention parameters and configurations against the rules of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from heddle.errors import UserError
from heddle.kernels.attention.implementation import Implementation
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.machine.spec import Machine

HEAD_DIMS = (64, 128, 256)
"""Elements of a head that the kernels are written for; others are padded to the next of these."""
FA4_FIELDS = ("exp_period", "exp_share", "rescaled")
"""Fields of a configuration that only FlashAttention 4 has."""


def complete_sizes(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with sizes in place of 0 (as many heads, keys as queries).

    Raises UserError if they contradict each other, whatever the machine.
    """
    found = dict(params)
    found["heads_kv"] = found["heads_kv"] or found["heads_q"]
    if "seqlen_q" in found:
        found["seqlen_kv"] = found["seqlen_kv"] or found["seqlen_q"]
    _check_heads(found)
    return found


def _check_heads(params: Mapping[str, Any]) -> None:
    if params["heads_q"] % params["heads_kv"]:
        raise UserError(
            f"heads_q = {params['heads_q']} must be a multiple of heads_kv = {params['heads_kv']}",
            hint="heads_kv = heads_q is multi-head attention, heads_kv = 1 multi-query attention",
        )


def check_problem(problem: AttentionProblem, chosen: Implementation, machine: Machine) -> None:
    """Raise UserError if the machine's kernel cannot run the problem; the message names the rule."""
    if problem.dtype not in chosen.dtypes:
        allowed = ", ".join(chosen.dtypes)
        raise UserError(f"{chosen.schedule} on {machine.name} takes {allowed}; got {problem.dtype!r}")


def check_config(config: AttentionConfig, needed_bytes: int, machine: Machine) -> None:
    """Raise UserError if a configuration does not fit; `needed_bytes` is its shared memory in a CTA."""
    for name in ("tile_m", "tile_n", "stages", "groups", "cluster"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, got {getattr(config, name)}")
    _check_cluster(config)
    defaults = {field.name: field.default for field in fields(config)}
    for name in FA4_FIELDS:
        if config.schedule != "fa4" and getattr(config, name) != defaults[name]:
            raise UserError(f"{name} is a parameter of fa4; {machine.name} runs {config.schedule}")
    if config.early_release not in (0, 1):
        raise UserError(f"early_release must be 0 or 1, got {config.early_release}")
    if config.early_release and config.schedule != "fa3":
        raise UserError(f"early_release is a parameter of fa3; {machine.name} runs {config.schedule}")
    if config.release not in (0, 1):
        raise UserError(f"release must be 0 or 1, got {config.release}")
    if config.release and config.schedule != "fa3":
        raise UserError(f"release is a parameter of fa3; {machine.name} runs {config.schedule}")
    if needed_bytes > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed_bytes} bytes of shared memory; a CTA of {machine.name} has "
            f"{machine.shared_memory_bytes_per_cta}",
            hint="use fewer stages or a smaller tile",
        )


def _check_cluster(config: AttentionConfig) -> None:
    most = 2 if config.schedule == "fa3" else 1
    if config.cluster > most:
        raise UserError(f"clusters of {config.cluster} CTAs; {config.schedule} takes {'1 or 2' if most == 2 else '1'}")
