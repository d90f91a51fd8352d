"""Is a picture drawn from a trace alone, and do traces of the attention kernels show the overlap each is known for?"""

from __future__ import annotations

import sys
from pathlib import Path

import interp_logs as tiny
import pytest

from heddle.errors import UserError
from heddle.machine import machine
from heddle.report.picture import captions, draw_trace
from heddle.report.timeline import ARITHMETIC, Row, difference, intersection, overlap, timeline_rows, union
from heddle.study import runs
from heddle.trace import Slice, Track, read_trace, write_trace

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
LARGEST_BYTES = 150_000


def test_intervals_join_meet_and_differ() -> None:
    assert union([(5, 7), (0, 2), (2, 3)]) == [(0, 3), (5, 7)]
    assert intersection([(0, 3), (5, 9)], [(2, 6), (8, 10)]) == [(2, 3), (5, 6), (8, 9)]
    assert difference([(0, 10)], [(2, 3), (5, 6)]) == [(0, 2), (3, 5), (6, 10)]
    assert overlap([(0, 4)], [(3, 9)]) == 0.25
    assert overlap([], [(3, 9)]) == 0.0


def _tracks() -> list[Track]:
    """Return two warp groups that take turns: one multiplies in cycles 0 to 10 while the other computes."""
    ping = Track(("SM 0", "ping", "warp 0"), [Slice(0, 10, "Mma a.py:1"), Slice(10, 20, "Elementwise a.py:2")])
    pong = Track(("SM 0", "pong", "warp 4"), [Slice(0, 10, "RowReduce a.py:2"), Slice(10, 20, "Mma a.py:1")])
    pong.slices.insert(1, Slice(8, 10, "wait: mbarrier"))
    products = [Slice(0, 10, "HGMMA a.py:1", {"warp": 0}), Slice(10, 20, "HGMMA a.py:1", {"warp": 4})]
    return [ping, pong, Track(("SM 0", "units", "tensor"), products), Track(("SM 1", "ping", "warp 0"), [])]


def test_rows_say_who_multiplies_who_computes_and_who_waits() -> None:
    rows = {row.name: row for row in timeline_rows(_tracks(), 0, 20)}
    assert list(rows) == ["tensor cores: ping", "tensor cores: pong", "ping (warp 0)", "pong (warp 4)"]
    assert rows["pong (warp 4)"].of(ARITHMETIC) == [(0, 8)]
    assert overlap(rows["pong (warp 4)"].of(ARITHMETIC), rows["tensor cores: ping"].of()) == 1.0


def test_rows_show_the_window_only() -> None:
    rows = {row.name: row for row in timeline_rows(_tracks(), 5, 10)}
    assert rows["tensor cores: ping"].of() == [(5, 10)]
    assert captions(list(rows.values()))[-1] == "100 % of its arithmetic under products"


def traced(folder: Path) -> Path:
    """Write the tiny product's trace."""
    file = folder / "tiny.pftrace"
    write_trace(tiny.result(tiny.run()), tiny.program(), machine("h100"), file)
    return file


def test_a_picture_comes_from_the_file_alone_and_is_the_same_each_time(tmp_path: Path) -> None:
    trace = traced(tmp_path)
    for name in ("a.svg", "b.svg"):
        draw_trace(trace, tmp_path / name, cycles=500)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "tensor cores: consumer" in text
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("picture", "options", "text"),
    [("p.gif", {}, r"a picture is one of \.svg"), ("p.svg", {"first_cycle": 10**6}, "shows nothing"),
     ("p.svg", {"cycles": 0}, "one is shown"), ("none/p.svg", {}, "cannot write")],
)  # fmt: skip
def test_what_cannot_be_drawn_is_an_error(tmp_path: Path, picture: str, options: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        draw_trace(traced(tmp_path), tmp_path / picture, **options)


def test_a_file_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.pftrace").write_bytes(b"\xff\xff\xff")
    with pytest.raises(UserError, match="is no trace"):
        draw_trace(tmp_path / "x.pftrace", tmp_path / "x.svg")
    with pytest.raises(UserError, match="cannot read"):
        draw_trace(tmp_path / "missing.pftrace", tmp_path / "x.svg")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match="needs matplotlib") as caught:
        draw_trace(traced(tmp_path), tmp_path / "x.svg")
    assert caught.value.hint == 'pip install "heddle-gpu[pictures]"'


def test_the_pictures_of_the_documentation_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in PICTURES.glob("*.svg")}
    assert len(sizes) >= 4
    assert max(sizes.values()) < LARGEST_BYTES


def attention_rows(folder: Path, gpu: str, mode: str, keys: int, window: tuple[int, int]) -> dict[str, Row]:
    """Return the rows of an attention kernel's trace, one head of 256 queries."""
    sizes = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 256, "seqlen_kv": keys}
    asked = runs.request("attention", gpu, mode=mode, texts=sizes)
    file = folder / "attention.pftrace"
    runs.write_timeline(asked, runs.run(asked), str(file))
    tracks, _ = read_trace(file)
    return {row.name: row for row in timeline_rows(tracks, *window)}


def under(rows: dict[str, Row], computing: str, multiplying: str) -> float:
    """Return the share of a role's arithmetic during which a role's products run."""
    some = next(row for name, row in rows.items() if name.startswith(computing))
    products = union(i for name, row in rows.items() if name.startswith("tensor") and multiplying in name
                     for i in row.of())  # fmt: skip
    return overlap(some.of(ARITHMETIC), products)


@pytest.mark.slow
def test_flash_attention_3_computes_softmax_of_one_group_under_products_of_the_other(tmp_path: Path) -> None:
    rows = attention_rows(tmp_path, "h100", "simt", 1408, (6000, 6000))
    assert under(rows, "consumer0", "consumer1") > 0.6
    assert under(rows, "consumer1", "consumer0") > 0.45


@pytest.mark.slow
def test_flash_attention_4_computes_softmax_of_both_tiles_under_products(tmp_path: Path) -> None:
    rows = attention_rows(tmp_path, "b200", "simt", 2048, (4000, 8000))
    assert min(under(rows, softmax, "matrix") for softmax in ("softmax0", "softmax1")) > 0.6
    both = [
        next(row for name, row in rows.items() if name.startswith(s)).of(ARITHMETIC) for s in ("softmax0", "softmax1")
    ]
    assert overlap(both[0], both[1]) < 0.8  # they take turns


@pytest.mark.slow
def test_flash_attention_2_loads_the_next_keys_under_the_work_on_these(tmp_path: Path) -> None:
    rows = attention_rows(tmp_path, "a100", "simt", 1024, (2000, 8000))  # most of the kernel
    work = union(i for row in rows.values() if row.name != "loads" for i in row.of())
    assert overlap(rows["loads"].of(), work) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["h100", "a100"])
def test_native_attention_computes_softmax_under_products(tmp_path: Path, gpu: str) -> None:
    rows = attention_rows(tmp_path, gpu, "fiber", 2048, (5000, 6000))
    assert min(under(rows, softmax, "tensor") for softmax in ("softmax0", "softmax1")) > 0.6
