"""The fields of the FIBER forms of DEPBAR: what BIND binds, and which bit of which registers BIT changes."""

from __future__ import annotations

from typing import Any

from heddle.errors import UserError
from heddle.ir.warp import Instruction, Register
from heddle.ir.warp_fiber import B_SLOT, BUSY_BIT_GROUPS, OWN, SUBPARTITIONS, Bind
from heddle.isa.emission.form import Form, Slot
from heddle.isa.emission.places import Window

SLOT_LETTERS = "abcd"
REGISTERS = 512
"""Of a subpartition: the 11-bit number of a register is subpartition * 512 + index."""


def put_bind(word: int, form: Form, bind: Bind, partner: Form) -> int:
    """Return a BIND whose consumed sources are named by the slots that they have in the next instruction."""
    fields = form.fields
    consume = sum(1 << _letter(partner, source) for source in bind.consume)
    word = fields["consume"].put_raw(word, consume)
    word = fields["hold"].put(word, int(bind.hold), "hold")
    word = fields["readers"].put_raw(word, sum(1 << subpartition for subpartition in bind.readers))
    b_only = bool(bind.scoped) and set(bind.scoped) != set(bind.consume)
    if b_only and bind.scoped != (B_SLOT,):
        raise UserError(f"scoped consumption of sources {bind.scoped} of {bind.consume}; needs all, none or B alone")
    word = fields["scoped"].put(word, int(bool(bind.scoped)), "scoped")
    return fields["b_only"].put(word, int(b_only), "B only")


def get_bind(word: int, form: Form, partner: Form) -> Bind:
    """Return what a BIND binds to an instruction of the form `partner`."""
    values = {name: field.get(word) for name, field in form.fields.items()}
    letters = {_letter(partner, source): source for source in range(len(_sources(partner)))}
    slots = [slot for slot in range(len(SLOT_LETTERS)) if values["consume"] >> slot & 1]
    if not set(slots) <= set(letters):
        raise UserError(f"a BIND consumes slots {slots} of {partner.text}, whose sources are in slots {list(letters)}")
    consume = tuple(sorted(letters[slot] for slot in slots))
    scoped = ((B_SLOT,) if values["b_only"] else consume) if values["scoped"] else ()
    readers = tuple(s for s in range(SUBPARTITIONS) if values["readers"] >> s & 1)
    return Bind(consume=consume, hold=bool(values["hold"]), readers=readers, scoped=scoped)


def _sources(form: Form) -> tuple[Slot, ...]:
    return (*form.src, *((form.accumulator,) if form.accumulator else ()))


def _letter(form: Form, source: int) -> int:
    """Return the slot, 0 for A, of a source of a form; the address of tensor memory counts as slot D."""
    slots = _sources(form)
    if source >= len(slots) or slots[source].field == "s":
        raise UserError(f"a BIND names source {source} of {form.text}, which has no slot")
    return SLOT_LETTERS.index("d" if slots[source].tensor else slots[source].field)


def put_bit(word: int, form: Form, row: Instruction, window: Window) -> int:
    """Return a DEPBAR.BIT of an aligned group of registers. Raises UserError for a group that it cannot name."""
    register = row.src[0]
    if register.count not in BUSY_BIT_GROUPS:
        raise UserError(f"a DEPBAR names {register.count} registers; allowed: {BUSY_BIT_GROUPS}")
    own = register.place in (None, OWN)
    index = register.index + (window.known_base() if register.place is None else 0)
    number = index if own else (register.place or 0) * REGISTERS + index
    fields: dict[str, Any] = {
        "log2_group": BUSY_BIT_GROUPS.index(register.count),
        "own": own,
        "register": number,
        "full": row.bit == "full",
        "set_bit": row.set_bit,
    }
    if own and window.in_pool(index) != (register.place == OWN):
        raise UserError(f"R{register.index} of a DEPBAR: its place does not follow from the pool's range")
    for name, value in fields.items():
        word = form.fields[name].put(word, int(value), name)
    return word


def get_bit(word: int, form: Form, window: Window) -> dict[str, Any]:
    """Return the fields of a row DEPBAR.BIT."""
    values = {name: field.get(word) for name, field in form.fields.items()}
    count = BUSY_BIT_GROUPS[values["log2_group"]]
    place, index = divmod(values["register"], REGISTERS)
    if not values["own"]:
        register = Register(index, count, place=place)
    elif window.in_pool(index):
        register = Register(index, count, place=OWN)
    else:
        register = Register(index - window.known_base(), count)
    return {"src": (register,), "bit": "full" if values["full"] else "empty", "set_bit": bool(values["set_bit"])}
