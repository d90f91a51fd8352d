"""Ask nvdisasm which registers words read and write: its life ranges (`-plr`), of a kernel whose code they replace."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from heddle.errors import UserError
from heddle.isa.judge import NOP
from heddle.isa.nvidia import program
from heddle.isa.words import HALF_BITS, WORD_BYTES

Marks = dict[tuple[str, int], str]
"""`^` written, `v` read, `x` both, by (register file, number); files are GPR, PRED, UGPR, UPRED."""

KERNEL_STEPS = 2000
_EXIT = 0x000FEA0003800000 << HALF_BITS | 0x000000000000794D
_NOP = NOP[1] << HALF_BITS | NOP[0]
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/")
_TIMEOUT_S = 300


@lru_cache
def template(architecture: str, steps: int = KERNEL_STEPS) -> bytes:
    """Return a cubin with one long kernel, compiled by NVIDIA's nvcc. Raises UserError where there is none."""
    target = architecture + ("" if architecture == "sm_80" else "a")
    body = "\n".join(f"y = y * x + {step}.5f; x = x + y;" for step in range(steps))
    opening = 'extern "C" __global__ void k(float *a, float x) { float y = a[threadIdx.x];'
    source = f"{opening}\n{body}\na[threadIdx.x] = x + y; }}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "k.cu").write_text(source)
        done = subprocess.run(
            [str(program("nvcc")), f"-arch={target}", "-cubin", "-o", str(path / "k.cubin"), str(path / "k.cu")],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise UserError(f"nvcc failed: {done.stderr.strip()[-500:]}")
        return (path / "k.cubin").read_bytes()


def marks_of(words: list[int], architecture: str, steps: int = KERNEL_STEPS) -> list[Marks]:
    """Return the marks of words, all of which nvdisasm has to accept and none of which may branch."""
    image = template(architecture, steps)
    start, size = _text_section(image)
    room = size // WORD_BYTES - 1
    found: list[Marks] = []
    for first in range(0, len(words), room):
        part = words[first : first + room]
        code = [*part, *[_NOP] * (room - len(part)), _EXIT]
        data = b"".join(word.to_bytes(WORD_BYTES, "little") for word in code)
        found += _run(image[:start] + data + image[start + len(data) :], len(part))
    return found


def _text_section(image: bytes) -> tuple[int, int]:
    """Return offset and size of the kernel's code."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    number, names = struct.unpack_from("<HH", image, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * index) for index in range(number)]
    strings = headers[names][4]
    for header in headers:
        begin = strings + header[0]
        if image[begin : image.index(b"\0", begin)].startswith(b".text."):
            return header[4], header[5]
    raise UserError("the compiled kernel has no code")


def _run(image: bytes, number: int) -> list[Marks]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        done = subprocess.run(
            [str(program("nvdisasm")), "-c", "-plr", "-lrm", "narrow", file.name],
            capture_output=True, text=True, timeout=_TIMEOUT_S,
        )  # fmt: skip
    lines = done.stdout.splitlines()
    columns = _columns(lines)
    found: list[Marks] = [{} for _ in range(number)]
    for line in lines:
        match = _LINE.search(line)
        if match and (index := int(match.group(1), 16) // WORD_BYTES) < number:
            found[index] = {key: line[at] for at, key in columns.items() if at < len(line) and line[at] in "^vx"}
    return found


def _columns(lines: list[str]) -> dict[int, tuple[str, int]]:
    """Return the register of each column, from the header of the table."""
    top = next(number for number, line in enumerate(lines) if "// |" in line and "GPR" in line)
    bottom = next(number for number in range(top, len(lines)) if "#" in lines[number].partition("// |")[2])
    bars = [at for at, letter in enumerate(lines[bottom]) if letter == "|"]
    columns = {}
    for low, high in pairwise(bars):
        name = lines[top][low + 1 : high].strip()
        first = lines[bottom].index("#", low) + 1
        for at in range(first, high):
            digits = "".join(line[at] for line in lines[top + 1 : bottom + 1] if at < len(line)).strip()
            if digits.isdecimal():
                columns[at] = name, int(digits)
    return columns
