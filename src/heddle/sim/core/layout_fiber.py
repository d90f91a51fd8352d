"""Layout of what programs of mode fiber add to `M`, and of the third part of their program rows (`core.layout`).

A register has a number in its subpartition: that of a vector register, or TENSOR_FIRST and the group of 32 columns.
ROW_ row of bits, Z_ wheel of changes of bits, O_ matrix operation in flight, V_ matrix queue of a subpartition, G4_
group of four wefts, A_ list of granted reads of an SM, Y_ program row, N_ change of bits, or warning.
"""

from __future__ import annotations

from heddle.sim.core.layout import H_FIBER_WORDS

# ---- header
H_ROWS = H_FIBER_WORDS  # address in P of the third part of the rows
H_DELAY = H_FIBER_WORDS + 1  # busy_bit_broadcast_cycles
H_SET = H_FIBER_WORDS + 2  # set_fiber_num_cycles
H_LEAST_TAKEN = H_FIBER_WORDS + 3  # tensor_port_share in ticks: the least share of the ports that accumulators take
H_OWNERS = H_FIBER_WORDS + 4  # wefts that have started
H_VECTORS = H_FIBER_WORDS + 5  # vector registers of a FIBER-thread in a subpartition
H_COLUMNS = H_FIBER_WORDS + 6  # groups of 32 columns of its tensor memory in a subpartition
H_POOL_FIRST = H_FIBER_WORDS + 7
H_POOL_LIMIT = H_FIBER_WORDS + 8
H_PAPER = H_FIBER_WORDS + 9  # 1: busy_bits = "paper"
H_PORT_READS = H_FIBER_WORDS + 10  # register_reads_per_bank_per_cycle
H_QUEUES = H_FIBER_WORDS + 11  # address of the matrix queues of SM 0
H_QUEUE_DEPTH = H_FIBER_WORDS + 12
H_GRANTS = H_FIBER_WORDS + 13  # address of the granted reads of SM 0
H_WARNINGS = H_FIBER_WORDS + 14  # address
H_WARNING_COUNT = H_FIBER_WORDS + 15
H_WARNING_ROOM = H_FIBER_WORDS + 16
H_CROSSED = H_FIBER_WORDS + 18  # counts of docs/reference/fiber.md, section 7
H_DENIED = H_FIBER_WORDS + 19
H_SHARED_READS = H_FIBER_WORDS + 20
H_BITS_SET = H_FIBER_WORDS + 21
H_BITS_CLEARED = H_FIBER_WORDS + 22
H_WEFT_BUSY = H_FIBER_WORDS + 23  # ticks of all matrix units of subpartitions
FIBER_COUNTS = 6  # counts from H_CROSSED on
H_X_OWN = H_FIBER_WORDS + 24  # own conflicts of the instruction that the arbiter has just granted
H_FAULT = H_FIBER_WORDS + 25  # address of the warp, or CTA, that an error is about
H_BANK_MASKS = H_FIBER_WORDS + 26  # 4 words: registers of each bank among 64

# ---- full and empty bits of a FIBER-thread: places (subpartitions), in each rows of words of 64 registers
BIT_WORDS = 9  # words of a row: eight of vector registers, one of groups of columns of tensor memory
VECTOR_WORDS = 8
TENSOR_FIRST = 512  # number of the first group of columns
PLACE_NUMBERS = 1024  # registers of the subpartitions in one sequence: place * PLACE_NUMBERS + number
ROW_EMPTY = 0  # 4 rows, one a view
ROW_FULL = 4  # PARTS rows, one a reading subpartition, and one for whoever consumes
ROW_ANY = 9  # all parts of F or-ed
ROW_GIVEN = 10  # registers that ports have given to X instructions in cycle A_CYCLE
PARTS = 5
ANYBODY = 4
PLACE_WORDS = 11 * BIT_WORDS
THREAD_WORDS = 4 * PLACE_WORDS
ALL_VIEWS = 15
ALL_PARTS = 31

# what changes, as a word: mask of rows | place << WHAT_PLACE_SHIFT; in an event also value and SM
ROWS_MASK = 511
WHAT_PLACE_SHIFT = 9
WHAT_BITS = 12
CHANGE_SET = 1  # DEPBAR.BIT
CHANGE_FULL = 2

# ---- wheel of an SM: changes of bits in the next WHEEL cycles; what is due later is an event
WHEEL = 64
Z_USED = 1  # mask of slots with changes
Z_FREE = 2  # first change that has been used and is free
Z_FRESH = 3  # changes that have been used
Z_CLEAR = 8  # WHEEL lists of clears ...
Z_SET = 72  # ... and of sets, which come after them in their cycle
Z_CHANGES = 136
CHANGES = 4096
N_NEXT, N_AT, N_PART, N_WHAT = 0, 1, 2, 3  # word in the first row of its place, registers there, rows and place
N_CHANGE_WORDS = 4
Z_WORDS = Z_CHANGES + CHANGES * N_CHANGE_WORDS

# ---- wheel of clears of a subpartition: E of registers that nobody else changes (FLAG_PLAIN), slot by slot
D_AT, D_PART, D_MORE = 0, 1, 2  # word in the own view, registers there, further ones: changes of the SM's wheel
D_SLOT_WORDS = 4
D_WORDS = WHEEL * D_SLOT_WORDS

# ---- matrix operation
OPS = 64  # a weft's, in flight
O_FIRST = 0  # number of the first register that it writes
O_COUNT = 1
O_END = 2  # cycle of its write-back, INF if not known
O_OWNER = 3
O_ROW = 4
O_ISSUED = 5
O_GROUP = 6  # number of the group instruction, -1: none
O_WARP = 7
O_DROP = 8  # 4 masks of its registers whose E a younger one clears
O_PORTS = 12  # 4 words, one a subpartition: reads of each bank, 16 bits a bank
O_START = 16  # ticks
O_NUMBER = 17  # of the collective
O_STAGE = 18  # of the ring that the log shows
O_ITEM = 19
O_FLAGS = 20  # Y_FLAGS
O_WORDS = 24

# ---- matrix queue of a subpartition
QUEUED = 32  # entries remembered
V_COUNT = 0  # entries issued
V_DECIDED = 1
V_FREE = 2  # ticks
V_SPAN_HEAD = 3
V_SPAN_TAIL = 4
V_OWNER = 5  # weft of the last instruction that was decided
V_OP = 8  # QUEUED addresses
V_START = 40  # QUEUED, ticks
V_SPAN = 72  # QUEUED * 4: first cycle, end, numerator, denominator of 1 / (1 - share)
V_WORDS = 200

# ---- group of four wefts
G4_FORMED = 0  # group instructions that all four have issued
G4_ISSUED = 4  # QUEUED numbers of members
G4_OP = 36  # QUEUED * 4 addresses
G4_WORDS = 168

# ---- granted reads
GIVEN = 64
A_CYCLE = 0
A_COUNT = 1  # words with given registers
A_GIVEN = 8  # GIVEN addresses of them
A_READS = A_GIVEN + GIVEN  # 4 words, one a subpartition: reads of the instruction in hand, 16 bits a bank
A_SEEN = A_READS + 4  # words of registers that a matrix instruction names, and ...
A_MEMBER = A_SEEN + 4 * 8  # ... that one of its members does
A_WORDS = A_MEMBER + 4 * 8

# ---- third part of a program row: what most instructions need, in one cache line with their first two tests, ...
Y_FLAGS = 0
Y_TESTS = 1  # numbers of tests: of sources | of accumulators << TESTS_BITS | of the destination << 2 * TESTS_BITS
Y_DST = 2  # groups: count | number << 16 | GROUP_* << 32, base included; 0: none
Y_LATENCY = 3  # cycles from issue to write-back, but for own conflicts
Y_TEST = 4  # TESTS pairs: words from one of W_VIEW, ... on << TEST_BASE_BITS | which of them; mask of its registers
TESTS = 40
TESTS_BITS = 8
TEST_BASE_BITS = 2
TEST_ANY, TEST_OWN, TEST_FULL = 0, 1, 2
# ... what binds, X instructions and accumulators need, ...
Y_BIND = 84
Y_TOUCHED = 85  # mask of the registers that it tests, all words together
Y_PORTS = 86  # of an X instruction: number of port reads | of those that the reuse cache leaves << TESTS_BITS
Y_ACCUMULATOR = 87
Y_PORT = 88  # PORT_READS pairs: word | place << PORT_PLACE_SHIFT (0: own, else place + 1); mask of the registers read
Y_PORT_REUSE = 136
PORT_READS = 24
PORT_PLACE_SHIFT = 4
# ... and what single units need
Y_SOURCES = 184  # number of source slots that are operands; a third slot of a matrix instruction is its accumulator
Y_PORT_SLOTS = 185  # source slots that are read through ports at issue
Y_PRODUCTS = 186  # ticks of a weft's matrix instruction
Y_STEP = 187  # ticks by which its operands may be read ahead
Y_SHARED_A = 188  # bytes
Y_SHARED_B = 189
Y_COMPLETE = 190  # ticks from operands read (WMMA) or from products (WMMA.TM) to the result
Y_SIGNATURE = 191  # equal for group instructions that go together
Y_FIBERS = 192  # of SETFIBER: wefts << 1 | all_scope
Y_SHARED_TICKS = 193  # of one weft's operands in shared memory
Y_GROUP_TICKS = 194  # of four's
Y_LOCAL_SLOTS = 195  # mask of source slots for which FLAG_LOCAL would hold
Y_SOURCE = 200  # SOURCES groups
SOURCES = 24
Y_WORDS = 232  # an odd number of cache lines, so that rows spread over a cache

FLAG_MATRIX = 2  # accumulates
FLAG_TESTS = 4  # tests and changes bits, in a way of its own if it accumulates
FLAG_GROUP = 8
FLAG_TM = 16  # accumulators in tensor memory
FLAG_READS = 32  # has sources that are registers
FLAG_READS_POOL = 64
FLAG_WRITES_POOL = 128
FLAG_LOCAL = 256  # no instruction names its destination from another subpartition: only one view of E is tested
FLAG_MAY_BE_FULL = 512  # some instruction makes a register of its destination full
FLAG_PLAIN = 1024  # E of its destination is changed by issues and write-backs in its own subpartition alone
FLAG_PRIVATE = 4096  # FLAG_PLAIN, and no other weft names its destination
FLAG_SIMPLE = 2048  # it changes no other bits than those, in the way of a pipe

GROUP_OWN, GROUP_PLACE = 0, 1  # a group in the weft's own subpartition, or in that of (kind - GROUP_PLACE)

BIND_SLOTS = 4
BIND_CONSUME = 15  # mask of slots
BIND_HOLD = 16
BIND_SCOPED_SHIFT = 5  # mask of slots
BIND_READERS_SHIFT = 9  # mask of parts

# ---- warning
N_SM, N_SLOT, N_COUNT, N_REGISTER = 0, 1, 2, 3
NAMED_REGISTERS = 4
N_WORDS = 8
