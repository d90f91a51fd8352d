"""Does the reference page of machines list every field as the code has it?"""

from pathlib import Path

from heddle.machine.describe import fields_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "machine.md"


def test_the_page_holds_the_fields_as_the_code_has_them() -> None:
    assert fields_table() in PAGE.read_text(encoding="utf-8")
