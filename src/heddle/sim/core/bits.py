"""Operations that are one machine instruction when compiled, and a call of a user's scheduler policy by address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

policies: list[Callable[[int, int, int, int], int]] = []
"""Policies of uncompiled simulations, called by their place in this list."""


def ctz(x: int) -> int:
    """Return the number of trailing zero bits of x, which is not 0."""
    return int(x & -x).bit_length() - 1


def top(x: int) -> int:
    """Return the index of the highest set bit of x, which is positive."""
    return int(x).bit_length() - 1


def call_policy(address: int, ready: int, last: int, subpartition: int, t: int) -> int:
    """Call a scheduler policy."""
    return int(policies[address](int(ready), int(last), int(subpartition), int(t)))


def _native_ctz(lower: Any, arguments: list[str]) -> str:
    return f"call i64 @llvm.cttz.i64(i64 {arguments[0]}, i1 false)"


def _native_top(lower: Any, arguments: list[str]) -> str:
    zeros = lower.out.value(f"call i64 @llvm.ctlz.i64(i64 {arguments[0]}, i1 false)")
    return f"sub i64 63, {zeros}"


def _native_call(lower: Any, arguments: list[str]) -> str:
    function = lower.out.value(f"inttoptr i64 {arguments[0]} to ptr")
    return f"call i64 {function}({', '.join(f'i64 {argument}' for argument in arguments[1:])})"


ctz.native = _native_ctz  # type: ignore[attr-defined]
top.native = _native_top  # type: ignore[attr-defined]
call_policy.native = _native_call  # type: ignore[attr-defined]
