"""How large a problem a kernel may be asked for, so that the answer comes within 30 s and 1 GB."""

from __future__ import annotations

from heddle.errors import UserError

MOST_ITEMS = 500_000
"""Work items of one kernel: each takes some 500 bytes and 10 microseconds while it is compiled and simulated."""


def check_item_count(what: str, items: int) -> None:
    """Raise UserError if a problem is cut into more work items than memory is meant to hold.

    `what`: who cuts what, as in `fa3 128x176 g2 s2 cuts 8 x 16 heads of 4096 queries`.
    """
    if items > MOST_ITEMS:
        raise UserError(
            f"{what} into {items:,} work items; at most {MOST_ITEMS:,} are simulated, so that a run stays below 30 s "
            "on one core and 1 GB of memory",
            hint="simulate a part, as half of the rows, and scale the time: beyond a few waves it grows with the work",
        )
