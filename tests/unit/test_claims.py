"""Does the report on the 13 bits say what each form of an instruction could use, and find bits that are taken?"""

from typing import Any

import pytest

from heddle.isa.claims import ALL, LIMITED, NONE, UNKNOWN, Claims, claim_of
from heddle.isa.codec import decode
from heddle.isa.form import Form
from heddle.isa.table import form_of
from heddle.isa.words import from_ints

NOP = 0x000FC00000000000_0000000000007918
FIELDS = {"Rd": "23:16", "Ra": "31:24", "Rb": "39:32", "Rc": "71:64", "Re": "47:40"}


def form(code: int, *sources: str, writes: str = "Rd") -> Form:
    """Return a form with these vector registers as sources, and what it writes."""
    fields: dict[str, dict[str, Any]] = {name: {"kind": "GPR", "bits": FIELDS[name]} for name in sources}
    for name in writes.split():
        fields[name] = {"kind": "GPR", "bits": FIELDS[name], "role": "def"}
    text = "X " + ", ".join(f"{{{name}}}" for name in fields)
    return form_of({"code": code, "name": "X", "text": text, "fields": fields})


@pytest.mark.parametrize(
    ("one", "architecture", "slots", "bits", "verdict"),
    [
        (form(0x223, "Ra", "Rb", "Rc"), "sm_90", "ABC", range(92, 105), ALL),
        (form(0x221, "Ra", "Rb"), "sm_90", "AB", [*range(92, 98), 101, 102, 104], ALL),
        (form(0x23C, "Ra", "Rb", "Rc", "Re"), "sm_90", "ABCD", range(92, 105), ALL),
        (form(0x1981, "Ra"), "sm_90", "A", [92, 93, 94, 101, 104], ALL),
        (form(0x1981, "Ra"), "sm_80", "A", [92, 93, 94, 104], LIMITED),
        (form(0x97E, "Ra", writes="Rd Rc"), "sm_100", "A", [92, 93, 94, 101, 104], LIMITED),
        (form(0xFAE, "Rd", "Ra", writes=""), "sm_90", "A", [92, 93, 94, 101, 104], LIMITED),
        (form(0xB82), "sm_90", "", [], NONE),
    ],
)
def test_a_form_has_the_bits_of_its_slots(
    one: Form, architecture: str, slots: str, bits: list[int], verdict: str
) -> None:
    claim = claim_of(one, architecture)
    assert (claim.slots, claim.bits, claim.verdict) == (slots, tuple(bits), verdict)


def test_bits_that_are_taken_are_counted_by_instruction() -> None:
    claims = Claims("sm_90")
    claims.add(decode(from_ints([0x1FF | 1 << 101, 0x1FF | 3 << 92, NOP]), "sm_90"))
    assert claims.set_bits == {("0x1ff", 101): 1, ("0x1ff", 92): 1, ("0x1ff", 93): 1}


def test_fiber_instructions_take_no_bits_of_others() -> None:
    claims = Claims("sm_90")
    claims.add(decode(from_ints([0x9F8 | 1 << 92]), "sm_90"))
    assert not claims.set_bits


def test_the_papers_place_is_counted() -> None:
    claims = Claims("sm_90")
    claims.add(decode(from_ints([0x1FF | 7 << 87, 0x1FF, 0x1FF | 1 << 90]), "sm_90"))
    assert (claims.paper_bits_taken, claims.verdicts[UNKNOWN], claims.unknown[0x1FF]) == (2, 3, 3)
