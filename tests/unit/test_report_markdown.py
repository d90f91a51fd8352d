"""Do printed tables become Markdown, and do they go where a page has room for them?"""

import pytest
from rich.console import Group
from rich.table import Table

from heddle.errors import UserError
from heddle.report.markdown import into_page, markdown, marks

BEGIN, END = marks("heddle x")


def test_tables_replace_those_between_the_marks_of_a_page() -> None:
    page = into_page(f"before\n{BEGIN}\nold\n{END}\nafter\n", "heddle x", "new\n")
    assert page == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_an_empty_page_gets_the_tables() -> None:
    assert into_page("", "heddle x", "new\n") == f"{BEGIN}\nnew\n{END}\n"


@pytest.mark.parametrize("page", ["text", f"{BEGIN}\nno end", f"{END}\n{BEGIN}"])
def test_a_page_without_room_is_refused(page: str) -> None:
    with pytest.raises(UserError, match="not the lines between which"):
        into_page(page, "heddle x", "new\n")


def test_printed_tables_have_their_title_and_texts_are_paragraphs() -> None:
    table = Table("a", "b", title="Title")
    table.add_row("1", "x|y")
    assert markdown(Group(Group(table), "said", "")) == "**Title**\n\n| a | b |\n| --- | --- |\n| 1 | x\\|y |\n\nsaid\n"
