"""Do symbolic indices become the right references?"""

from __future__ import annotations

import pytest

from heddle.errors import UserError
from heddle.ir import tile
from heddle.ir.warp import Count, Tensor
from heddle.lang import GlobalHandle, Index

A = GlobalHandle(Tensor(name="A", shape=(256, 256), dtype="fp16"))
ROW, COL, KB, RANK = Index(attribute="row"), Index(attribute="col"), Index(loop="kb", step=1), Index(rank_step=1)


def test_attribute_and_loop_become_row_and_step() -> None:
    ref = A[ROW, KB * 64].reference(128, 64)
    assert ref == tile.GlobalRef(tensor="A", rows=128, cols=64, row="row", loop="kb", col_step=64)


def test_a_counter_ahead_becomes_ahead() -> None:
    ref = A[ROW, (KB + 3) * 64].reference(128, 64)
    assert (ref.ahead, ref.col_offset, ref.col_step) == (3, 0, 64)


def test_what_is_no_whole_iteration_becomes_an_offset() -> None:
    ref = A[ROW, KB * 64 + 32].reference(128, 32)
    assert (ref.ahead, ref.col_offset) == (0, 32)


def test_attribute_and_loop_in_one_index() -> None:
    ref = A[ROW, Index(attribute="k_begin") + KB * 64].reference(128, 64)
    assert (ref.col, ref.loop, ref.col_step) == ("k_begin", "kb", 64)


def test_rank_of_the_cta_becomes_cta_row() -> None:
    ref = A[ROW + RANK * 128, COL + 16].reference(128, 64)
    assert (ref.cta_row, ref.cta_col, ref.row_offset, ref.col_offset) == (128, 0, 0, 16)


def test_rows_that_move_with_the_loop() -> None:
    ref = A[(KB + 1) * 32, COL].reference(32, 64)
    assert (ref.row_step, ref.ahead, ref.row_offset) == (32, 1, 0)


def test_two_loops_in_one_box() -> None:
    with pytest.raises(UserError, match="a box moves with one loop"):
        A[Index(loop="i", step=1) * 8, KB * 64].reference(8, 64)


@pytest.mark.parametrize(
    ("index", "count"),
    [(ROW, Count(attribute="row")), (ROW - 3, Count(attribute="row", offset=-3)), (Index(constant=5), Count(5))],
)
def test_counts(index: Index, count: Count) -> None:
    assert index.count() == count


def test_a_count_may_not_depend_on_a_counter() -> None:
    with pytest.raises(UserError, match="a loop count may not depend"):
        (KB + 1).count()
