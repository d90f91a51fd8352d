"""What `heddle sass` prints: kernels, the report on the 13 bits, and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.isa.claims import Claims

MOST_SHOWN = 20


def show_kernels(rows: Sequence[Mapping[str, Any]], out: Console) -> None:
    """Print kernels: resources, then a line an instruction."""
    for row in rows:
        needs = ", ".join(f"{name} {value}" for name, value in row["resources"].items() if value is not None)
        out.print(f"{row['kernel']}: {needs}", soft_wrap=True)
        if row["raw"]:
            out.print(f"  {bound(row['raw'])}", soft_wrap=True)
        for one in row["instructions"]:
            line = f"  // {one['line']}" if one["line"] else ""
            text = f"  {one['offset']:05x}  {one['control']}  {one['live']:>3}  {one['text']}{line}"
            out.print(text, soft_wrap=True, markup=False)


def bound(raw: int) -> str:
    """Return what instructions of unknown opcodes mean for live registers."""
    return (
        f"{raw} instructions have unknown opcodes and count as readers of every register: live registers are the most"
    )


def show_claims(found: Mapping[str, Claims], out: Console) -> None:
    """Print the report on the 13 bits, one architecture after the other."""
    from rich.table import Table

    from heddle.isa.claims import VERDICTS

    for claims in found.values():
        taken = f"{claims.paper_bits_taken / max(claims.instructions, 1):.1%}"
        out.print(
            f"{claims.architecture}: {claims.instructions} instructions; bits 99:87 of the paper are taken in {taken}"
        )
        for verdict in VERDICTS:
            count = claims.verdicts[verdict]
            out.print(f"  {verdict}: {count} ({count / max(claims.instructions, 1):.1%})")
        for limit, count in claims.limits.most_common():
            out.print(f"  limit: {limit}: {count}")
        for (name, bit), count in claims.set_bits.most_common(MOST_SHOWN):
            out.print(f"  bit {bit} is set in {count} {name}")
        if claims.unknown:
            codes = ", ".join(f"{code:#x}: {count}" for code, count in claims.unknown.most_common(MOST_SHOWN))
            out.print(f"  opcodes not known: {codes}")
        table = Table("instruction", "number", "source slots", "bits of use", "limit")
        for name, count in claims.names.most_common(MOST_SHOWN):
            one = claims.by_name[name]
            table.add_row(name, str(count), one.slots or "-", ranges(one.bits), one.limit)
        out.print(table)


def ranges(bits: tuple[int, ...]) -> str:
    """Return bits as ranges, such as 94:92 104."""
    parts: list[list[int]] = []
    for bit in bits:
        if parts and bit == parts[-1][-1] + 1:
            parts[-1].append(bit)
        else:
            parts.append([bit])
    return " ".join(f"{part[-1]}:{part[0]}" if len(part) > 1 else str(part[0]) for part in parts) or "-"


def show_differences(found: Sequence[str], out: Console) -> None:
    """Print the first differences, and how many more there are."""
    for one in found[:MOST_SHOWN]:
        out.print(one, soft_wrap=True, markup=False)
    if len(found) > MOST_SHOWN:
        out.print(f"and {len(found) - MOST_SHOWN} more")
