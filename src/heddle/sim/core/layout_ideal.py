"""Layout of what idealised simulations add (docs/reference/engine.md, section 9).

Names: H_ header, Q_ subpartition, W_ warp, I_ per pc in `P`, D_ record of a straight piece of code in `P`, O_ record of
a warp in `M`.
"""

from __future__ import annotations

H_IDEAL = 88  # 0: the machine as it is, nothing of this file is looked at; else IDEAL_*
H_PHASES = 89  # mask of the phases of a ring that a warp counts: 1, the parity; -1, all, where barriers are off
H_I_PCS = 90  # address in P of I_WORDS words a pc
H_I_ROOM = 91  # instructions that the record of a warp has room for
H_I_CONTEXTS = 92  # warp contexts of a subpartition
IDEAL_ORDER, IDEAL_BARRIERS, IDEAL_PRODUCTS = 1, 2, 4

Q_MATRIX_FREE = 146  # ticks: the subpartition's quarter of the matrix unit
Q_MATRIX_SPANS = 147  # address of the spans in which it works: laid out as those of an SM's whole unit (S_ACTIVE)
Q_MATRIX_WARP = 149  # warp that it worked for last
Q_MATRIX_OPEN = 15  # 1: its group of products has not been closed

W_IDEAL = 320  # address of the warp's record

# ---- a pc
I_PIECE = 0  # address of the piece that starts here, 0 if control never comes here
I_KIND = 1  # KIND_*
I_SOURCES = 2  # address of a list of registers
I_DESTINATIONS = 3
I_TILES = 4  # address of a list of TILE_WORDS words
I_WORDS = 5
KIND_ORDERED = 1  # issues in program order among its like
KIND_FENCE = 2  # ends a piece
KIND_UNNAMED = 4  # a register instruction whose result is no named register
KIND_MATRIX = 8  # an asynchronous matrix instruction
TILE_BARRIER, TILE_RING, TILE_OFFSET, TILE_BYTES, TILE_WORDS = 0, 1, 2, 3, 4

# ---- a straight piece of code
D_COUNT = 0
D_WRITERS = 1  # address of a list of WRITER_WORDS words: a register, the place of its last writer, is it a product
D_PLACES = 2  # then for each instruction ...
D_NEEDS = 0  # ... how many before it in the piece produce what it reads,
D_USERS = 1  # ... address of the list of places that read its result,
D_INPUTS = 2  # ... address of the list of registers that it reads from before the piece, ...
D_CHAIN = 3  # ... and of those that it accumulates into: of an earlier product it need not wait for them
D_WORDS = 4
WRITER_WORDS = 3

# ---- a warp
REGISTERS = 257  # 255 and one that stands for all predicates
PREDICATES = 256
O_PIECE = 0
O_ROW = 1  # first row of the piece
O_HEAD = 2  # place of the oldest instruction that has not issued
O_ORDERED = 3  # place of the oldest ordered one that has not
O_CLOSED = 4  # 1: the instruction before the piece still holds all of it up
O_UNNAMED = 5  # cycle from which the results of unnamed register instructions are there
O_GUARD = 6  # cycle in which the operands of the products that a wait named have been read
O_LAST_READ = 7  # the same of the youngest product
O_SOON = 529  # nothing in the window can issue before this cycle, ...
O_FORMED = 530  # ... unless the warp's group has more collectives than this
O_FOUND = 531  # row that could issue when the warp was looked at last
O_VALUE = 8  # REGISTERS words: cycle from which a register's value is there; -n: when collective n - 1 is complete
O_READ = 272  # REGISTERS words: in order, cycle in which products have read the register; else 1 if one wrote it
O_TABLES = 536  # then `H_I_ROOM` words each: ...
T_DONE = 0  # ... as O_VALUE, of each instruction's result
T_WHEN = 1  # ... cycle from which what it reads is there, of what is known
T_LEFT = 2  # ... producers that have not issued
T_LATE = 3  # ... latest collective + 1 that it reads and whose end is not known
T_ISSUED = 4  # ... 1 when it has issued
T_KNOWN = 5  # bits of those that have not, but all of whose producers have; 64 a word
TABLES = 6
