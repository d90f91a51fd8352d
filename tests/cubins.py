"""Cubins for tests: own kernels, compiled in the run and kept; cubins of public packages; a small one written by
hand.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.isa.cubin.elf import REL, RELA, SEGMENT, SYMBOL, TYPE_NOBITS, Elf, Section
from heddle.isa.cubin.layout import write_elf
from heddle.isa.nvidia import program, run_program

SOURCES = Path(__file__).parent / "fixtures" / "cuda"
KERNELS = [(name, sm) for name in ("control", "memory", "mma") for sm in ("sm_80", "sm_90a", "sm_100a")] + [
    ("wgmma", "sm_90a"),
    ("tcgen05", "sm_100a"),
]
PACKAGES = ("nvidia-nvjpeg==13.3.2.43", "bitsandbytes==0.50.2")
LIBRARIES = {"nvidia-nvjpeg": "libnvjpeg.so.13", "bitsandbytes": "libbitsandbytes_cuda128.so"}
TARGETS = ("sm_80", "sm_90", "sm_100")

EXIT, BRANCH_SELF, NOP = (
    0x000FEA0003800000_000000000000794D,
    0x000FC0000383FFFF_FFFFFFFC00FC7947,
    0x000FC00000000000_0000000000007918,
)
LOAD_STACK = 0x000FE20000000800_00000A00FF017B82
BRANCH_NEXT = 0x000FEA0003800000_0000000000048947  # @!P0 BRA over one instruction


def kept(folder: str) -> Path:
    """Return a folder of the cache of tests."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"  # conftest gives away HEDDLE_CACHE
    path = Path(root) / "heddle-tests" / folder
    path.mkdir(parents=True, exist_ok=True)
    return path


def tool(name: str) -> Path:
    """Return one of NVIDIA's programs; skips the test where the extra `sass` is not installed."""
    try:
        return program(name)
    except UserError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@cache
def own_cubin(name: str, architecture: str) -> Path:
    """Compile one of our own sources and return the cubin; skips where the compiler is not installed."""
    compiler = tool("nvcc")
    if shutil.which("gcc") is None:
        pytest.skip("nvcc needs gcc")
    source = SOURCES / f"{name}.cu"
    key = hashlib.sha256(source.read_bytes() + run_program("nvcc", ["--version"]).encode()).hexdigest()[:16]
    path = kept("cuda") / f"{name}.{architecture}.{key}.cubin"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        subprocess.run(
            [compiler, "-O3", "-lineinfo", f"-arch={architecture}", "-cubin", "-o", part, source.name],
            cwd=SOURCES, check=True, capture_output=True,
        )  # fmt: skip
        part.replace(path)
    return path


@cache
def third_party_cubins() -> tuple[Path, ...]:
    """Install public packages into the cache and return the cubins of their libraries; skips where that is not
    possible.
    """
    tool("cuobjdump")
    folder = kept("third-party")
    if not (folder / "done").exists():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            folder / "packages",
            *PACKAGES,
        ]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"public packages could not be installed: {done.stderr.strip()[-200:]}")
        for library in LIBRARIES.values():
            (path,) = (folder / "packages").rglob(library)
            for target in TARGETS:
                run_program("cuobjdump", ["-xelf", f".{target}.", "-all", path], folder)
        (folder / "done").touch()
    return tuple(sorted(folder.glob("*.cubin")))


def small_cubin(words: list[int] | None = None, threads: int | None = 128) -> bytes:
    """Return a cubin of sm_90 with one kernel `k` and, at 0x50, a function `inner`; nothing but our own bytes."""
    code = words or [LOAD_STACK, BRANCH_NEXT, NOP, EXIT, BRANCH_SELF, NOP, EXIT, NOP]
    text = b"".join(word.to_bytes(16, "little") for word in code)
    symbols, strings = _symbols(len(text))
    rows = np.zeros(1, RELA)
    rows[0] = (0x20, 2 << 32 | 56, 0x30)
    lines, at = _line_table(len(text))
    line_rows = np.zeros(1, RELA)
    line_rows[0] = (at, 2 << 32 | 2, 0)
    parts = [
        ("", 0, 0, 0, 0, 0, 0, b""),
        (".shstrtab", 3, 0, 0, 0, 1, 0, b""),
        (".strtab", 3, 0, 0, 0, 1, 0, strings),
        (".symtab", 2, 0, 2, 1, 8, SYMBOL.itemsize, symbols),
        (".nv.info", 0x70000000, 0, 3, 0, 4, 0, struct.pack("<BBHII", 4, 0x2F, 8, 2, 24)),
        (".nv.info.k", 0x70000000, 0x40, 3, 6, 4, 0, _info(threads)),
        (".text.k", 1, 6, 3, 2, 128, 0, text),
        (".rela.text.k", 4, 0x40, 3, 6, 8, RELA.itemsize, rows.tobytes()),
        (".debug_line", 1, 0, 0, 0, 1, 0, lines),
        (".rela.debug_line", 4, 0x40, 3, 8, 8, RELA.itemsize, line_rows.tobytes()),
        (".nv.shared.k", TYPE_NOBITS, 3, 0, 6, 16, 0, bytes(64)),
    ]
    names = b"".join(part[0].encode() + b"\0" for part in parts)
    sections, at = [], 0
    for index, (name, kind, flags, link, info, alignment, entry, data) in enumerate(parts):
        data = names if name == ".shstrtab" else data
        kept_data = b"" if kind == TYPE_NOBITS else data
        sections.append(Section(name, at, kind, flags, 0, index, len(data), link, info, alignment, entry, kept_data))
        at += len(name) + 1
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01\x41\x08", 2, 190, 1, 0, 0, 0, 0x6005A04, 64, 56, 0, 64, 0, 1
    )
    elf = Elf(header, SimpleNamespace(e_phoff=0, e_shstrndx=1), tuple(sections), np.zeros(0, SEGMENT))
    return write_elf(elf, elf)


def _symbols(size: int) -> tuple[bytes, bytes]:
    rows = np.zeros(4, SYMBOL)
    rows[1] = (0, 3, 0, 6, 0, 0)
    rows[2] = (1, 0x12, 0x10, 6, 0, 0x50)
    rows[3] = (3, 0x02, 0, 6, 0x50, size - 0x50)
    return rows.tobytes(), b"\0k\0inner\0"


def _info(threads: int | None) -> bytes:
    exits = struct.pack("<BBHII", 4, 0x1C, 8, 0x30, 0x60)
    bound = struct.pack("<BBHIII", 4, 0x05, 12, threads, 1, 1) if threads else b""
    return exits + struct.pack("<BBH", 3, 0x1B, 255) + bound


def _line_table(size: int) -> tuple[bytes, int]:
    """Return a line program of version 3 (rows at 0, 0x10 and 0x50), and where its address lies."""
    tables = b"\0" + b"k.cu\0\0\0\0" + b"\0"
    fields = bytes((1, 1, 0xFB, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
    begin = b"\0\x09\x02"
    program = begin + bytes(8) + bytes((3, 9, 1)) + bytes((3, 1, 2, 16, 1)) + bytes((3, 5, 2, 64, 1))
    program += bytes((2, size - 0x50)) + b"\0\x01\x01"
    head = struct.pack("<H", 3) + struct.pack("<I", len(fields) + len(tables)) + fields + tables
    data = struct.pack("<I", len(head) + len(program)) + head + program
    return data, 4 + len(head) + len(begin)


__all__ = ["KERNELS", "REL", "own_cubin", "small_cubin", "third_party_cubins", "tool"]
