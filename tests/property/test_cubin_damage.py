"""Does a damaged cubin, or any bytes at all, end in a clear error: no traceback, no hang, no memory?"""

import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubins import own_cubin, small_cubin
from heddle.errors import UserError
from heddle.isa.cubin.compare import compare
from heddle.isa.cubin.cubin import parse_cubin
from heddle.isa.cubin.lines import read_lines
from heddle.isa.cubin.note import read_note
from heddle.isa.cubin.patch import patch_entry
from heddle.isa.cubin.report import claims_of, pressure_of
from heddle.isa.cubin.resources import resources

ORIGINAL = small_cubin()
MUTATIONS, OF_SMALL, OF_OWN = 10_000, 8_000, 500
"""Small cubins have every kind of table and take a fortieth of the time."""
DAMAGED = (("control", "sm_80"), ("memory", "sm_90a"), ("wgmma", "sm_90a"), ("tcgen05", "sm_100a"))
LIMIT_BYTES, LIMIT_S = 200 << 20, 10.0


def use(data: bytes) -> None:
    """Do with a cubin all that the commands do without NVIDIA's programs. Raises UserError and nothing else."""
    cubin = parse_cubin(data)
    for kernel in cubin.kernels:
        resources(cubin, kernel)
        pressure_of(cubin, kernel, 128)
    claims_of([cubin])
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


@settings(deadline=None)  # the first that decodes loads the opcode table
@given(st.integers(0, 2**32))
def test_a_damaged_small_cubin_is_refused_or_used(seed: int) -> None:
    outcome(mutated(ORIGINAL, random.Random(seed)))


@contextmanager
def limits() -> Iterator[None]:
    """Give the process 200 MB more memory than it has, and each mutation ten seconds of work, while the block runs."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + LIMIT_BYTES, hard))
    before = signal.signal(signal.SIGVTALRM, hangs)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def hangs(*_: object) -> None:
    """Stop work that does not end."""
    raise TimeoutError(f"no end after {LIMIT_S} s of work")


def damage(data: bytes, count: int, name: str) -> tuple[int, int]:
    """Use so many damaged copies of a file; return how many were refused and how many were used."""
    use(data)
    draw, outcomes = random.Random(name), [0, 0]
    with limits():
        for index in range(count):
            signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
            try:
                outcomes[outcome(mutated(data, draw))] += 1
            except BaseException as error:
                error.add_note(f"mutation {index} of {name}")
                raise
    return outcomes[0], outcomes[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)  # three minutes on an idle machine
def test_ten_thousand_damaged_cubins_end_in_an_error_or_are_used() -> None:
    files = {f"{name}.{sm}": own_cubin(name, sm).read_bytes() for name, sm in DAMAGED}
    files["small"] = ORIGINAL
    counts = [damage(data, OF_SMALL if name == "small" else OF_OWN, name) for name, data in files.items()]
    assert sum(map(sum, counts)) >= MUTATIONS
    assert all(refused > 0 and used > 0 for refused, used in counts)


def forever(_: bytes) -> bool:
    """Work without end."""
    while True:
        pass


def wasteful(_: bytes) -> bool:
    """Take more memory than is allowed."""
    return bool(bytearray(2 * LIMIT_BYTES))


@pytest.mark.parametrize(("broken", "error"), [(forever, TimeoutError), (wasteful, MemoryError)])
def test_a_hang_and_too_much_memory_are_found(
    broken: Callable[[bytes], bool], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "LIMIT_S", 0.05)
    monkeypatch.setitem(globals(), "outcome", broken)
    with pytest.raises(error):
        damage(ORIGINAL, 1, "small")
