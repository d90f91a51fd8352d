"""Which opcodes of `heddle.ir.opcodes` exist on which architecture, to check a machine's table for holes."""

from __future__ import annotations

from heddle.ir.opcodes import OPCODES

_SINCE_SM_90 = {
    "VIADD", "ELECT", "STSM", "USETMAXREG", "UCGABAR",
    "UTMALDG", "UTMASTG", "UTMAREDG", "UTMACMDFLUSH", "UTMADEPBAR", "UBLKCP.S.S",
    "SYNCS.EXPECT", "SYNCS.ARRIVE", "SYNCS.TRYWAIT",
}  # fmt: skip
_ONLY_SM_90 = {"HGMMA", "QGMMA", "WARPGROUP.ARRIVE", "WARPGROUP.COMMIT", "WARPGROUP.DEPBAR"}
_SINCE_SM_100 = {"FADD2", "FMUL2", "FFMA2", "FMNMX3", "R2P", "UTCHMMA", "UTCQMMA", "UTCBAR", "LDTM", "STTM", "FENCE.TM"}
FIBER_OPCODES = frozenset({"SETFIBER", "DEPBAR.BIND", "DEPBAR.BIT", "WMMA", "WMMA.TM"})
"""Opcodes that only machines with FIBER features execute."""
HYPOTHETICAL_OPCODES = frozenset({"WARPGROUP.SIGNAL"})
"""Opcodes of no GPU, for experiments; a machine that has no timing for one cannot run it."""


def opcodes_of(architecture: str) -> frozenset[str]:
    """Return the opcodes that an architecture (sm_80, sm_90, sm_100) executes without FIBER features."""
    absent = set(FIBER_OPCODES | HYPOTHETICAL_OPCODES)
    if architecture == "sm_80":
        absent |= _SINCE_SM_90
    if architecture != "sm_90":
        absent |= _ONLY_SM_90
    if architecture != "sm_100":
        absent |= _SINCE_SM_100
    return frozenset(OPCODES) - absent
