"""Does a damaged cubin, or any bytes at all, end in a clear error: no traceback, no hang, no memory?"""

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubins import KERNELS, own_cubin, small_cubin
from heddle.errors import UserError
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import parse_cubin
from heddle.isa.cubin.lines import read_lines
from heddle.isa.cubin.note import read_note
from heddle.isa.cubin.patch import patch_entry
from heddle.isa.cubin.resources import resources

ORIGINAL = small_cubin()
MUTATIONS, LIMIT_BYTES = 10_000, 200 << 20


def use(data: bytes) -> None:
    """Do with a cubin all that the commands do without NVIDIA's programs. Raises UserError and nothing else."""
    cubin = parse_cubin(data)
    for kernel in cubin.kernels:
        resources(cubin, kernel)
    read_lines(cubin)
    read_note(cubin)
    compare(cubin, parse_cubin(patch_entry(cubin, 64).data))


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes with a few of them changed, cut or doubled."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at, kind = draw.randrange(len(out)), draw.randrange(5)
        if kind == 0:
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            size = draw.choice((2, 4, 8))
            at &= -size
            out[at : at + size] = draw.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(out))).to_bytes(8, "little")[:size]
        elif kind == 3 and len(out) > 64:
            del out[at : at + draw.randrange(1, 64)]
        else:
            out[at:at] = out[at : at + draw.randrange(1, 64)]
    return bytes(out)


def outcome(data: bytes) -> bool:
    """Return whether the bytes are taken; an error that is none for people goes on."""
    try:
        use(data)
    except UserError:
        return False
    return True


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert not outcome(data)


@given(st.integers(0, 2**32))
def test_a_damaged_small_cubin_is_refused_or_used(seed: int) -> None:
    outcome(mutated(ORIGINAL, random.Random(seed)))


@pytest.mark.slow
@pytest.mark.timeout(3600)  # half a minute on an idle machine
@pytest.mark.parametrize(("name", "architecture"), KERNELS)
def test_damaged_cubins_of_own_kernels_end_in_an_error(name: str, architecture: str) -> None:
    path = own_cubin(name, architecture)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_cubin_damage as t; "
    code += f"t.run({str(path)!r}, {-(-MUTATIONS // len(KERNELS))})"
    environment = {"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def run(path: str, count: int) -> None:
    """Use so many damaged copies of a file, with no more memory than the limit beyond what the first use took."""
    data = Path(path).read_bytes()
    use(data)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + LIMIT_BYTES, taken + LIMIT_BYTES))
    draw = random.Random(path.rpartition("/")[2])
    for index in range(count):
        damaged = mutated(data, draw)
        try:
            outcome(damaged)
        except BaseException:
            print(f"mutation {index} of {path}", file=sys.stderr)
            raise
