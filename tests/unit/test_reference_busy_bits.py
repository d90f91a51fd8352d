"""Do full and empty bits change as docs/reference/fiber.md, section 3, rule 5 says?"""

from heddle.machine import machine
from heddle.sim.reference.busy_bits import BusyBits
from heddle.sim.reference.registers import Physical


def test_a_remote_release_also_clears_a_part_that_is_set_before_it_is_seen() -> None:
    bits, register = BusyBits(machine("a100+fiber")), Physical(0, 5)
    bits.clear_full([register], origin=1, seen=1)  # seen at home from 1 + L on
    bits.set_full([register], (None,), origin=0, seen=1)
    assert [bits.full(register, cycle) for cycle in (0, 1, 2)] == [False, True, False]
