"""Reads bytes of DWARF: fixed numbers, LEB128, strings; the end is an error for people."""

from __future__ import annotations

from heddle.errors import UserError

LONGEST_LEB = 10
"""Bytes of the longest LEB128 number that is read, 64 bits."""


class BytesReader:
    """Reads forward from `at` to `end`. Every method raises UserError where the bytes are too few."""

    def __init__(self, data: bytes, what: str, at: int = 0, end: int | None = None) -> None:
        self.data, self.what, self.at = data, what, at
        self.end = len(data) if end is None else end
        if self.end > len(data) or at > self.end:
            raise UserError(f"damaged cubin: {what} has {len(data)} bytes, {self.end} are asked for")

    @property
    def left(self) -> bool:
        """Whether there are bytes left."""
        return self.at < self.end

    def bytes(self, count: int) -> bytes:
        """Return the next bytes."""
        if self.at + count > self.end:
            raise UserError(f"damaged cubin: {self.what} ends at {self.end:#x}, inside what begins at {self.at:#x}")
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def number(self, size: int) -> int:
        """Return a little-endian number of so many bytes."""
        return int.from_bytes(self.bytes(size), "little")

    def leb(self, signed: bool = False) -> int:
        """Return a LEB128 number."""
        value = 0
        for index in range(LONGEST_LEB):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * index
            if not byte & 0x80:
                return value - (1 << 7 * (index + 1)) if signed and byte & 0x40 else value
        raise UserError(f"damaged cubin: a number of {self.what} has no end at {self.at:#x}")

    def string(self) -> str:
        """Return the string up to the next zero byte."""
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            raise UserError(f"damaged cubin: a string of {self.what} has no end at {self.at:#x}")
        taken = self.data[self.at : end].decode("utf-8", "backslashreplace")
        self.at = end + 1
        return taken


def uleb(value: int) -> bytes:
    """Return a number as unsigned LEB128."""
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)
