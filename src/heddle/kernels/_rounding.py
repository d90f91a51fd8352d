"""Division that rounds up: tiles of a problem, CTAs of a grid, padded rows."""

from __future__ import annotations


def ceil_div(value: int, divisor: int) -> int:
    """Return value / divisor rounded up."""
    return -(-value // divisor)
