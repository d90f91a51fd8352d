"""Layout of what programs of mode fiber add to `M`, and of the third part of their program rows (`core.layout`).

R_ register record (32 lanes of a vector register, or 32 columns of tensor memory, in one subpartition), O_ matrix
operation in flight, V_ matrix queue of a subpartition, G4_ group of four wefts, A_ list of granted reads of an SM,
Y_ program row, N_ warning.
"""

from __future__ import annotations

from heddle.sim.core.layout import H_FIBER_WORDS

# ---- header
H_ROWS = H_FIBER_WORDS  # address in P of the third part of the rows
H_DELAY = H_FIBER_WORDS + 1  # busy_bit_broadcast_cycles
H_SET = H_FIBER_WORDS + 2  # set_fiber_num_cycles
H_STAMP = H_FIBER_WORDS + 3  # last number that marked registers
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

# ---- register
R_EMPTY = 0  # 4 words, one a view: last change that is seen there, cycle << 1 | value
R_COUNT = 4  # changes to come
R_STAMP = 5
R_CHANGES = 6  # CHANGES words: cycle << CHANGE_BITS | CHANGE_*
CHANGES = 9
R_WAITERS = 15  # 4 masks, one a subpartition, of warps to look at when a change is added
R_FULL = 19  # PARTS words: as R_EMPTY, one a reading subpartition, and one for whoever consumes
PARTS = 5
ANYBODY = 4
R_WORDS = 24

CHANGE_BITS = 10
CHANGE_SET = 1
CHANGE_FULL = 2
CHANGE_ORIGIN_SHIFT = 2
CHANGE_MASK_SHIFT = 4
ALL_VIEWS = 15
ALL_PARTS = 31

# ---- matrix operation
OPS = 64  # a weft's, in flight
O_FIRST = 0  # address of the first register that it writes
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
O_WORDS = 24

# ---- matrix queue of a subpartition
QUEUED = 32  # entries remembered
V_COUNT = 0  # entries issued
V_DECIDED = 1
V_FREE = 2  # ticks
V_SPAN_HEAD = 3
V_SPAN_TAIL = 4
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
GRANTS = 512
A_CYCLE = 0
A_COUNT = 1
A_REGISTER = 8
A_READS = 8 + GRANTS  # counts of the instruction in hand: 4 banks of each of 4 subpartitions
A_WORDS = A_READS + 16

# ---- third part of a program row
Y_FLAGS = 0
Y_DST = 1  # groups: count | number << 16 | GROUP_* << 32; 0: none
Y_ACCUMULATOR = 2
Y_BIND = 3
Y_SOURCES = 4  # number of source slots that are operands; a third slot of a matrix instruction is its accumulator
Y_SOURCE = 24  # SOURCES groups
SOURCES = 24
Y_KEPT = 11  # mask of slots that the reuse cache can hold
Y_PRODUCTS = 12  # ticks of a weft's matrix instruction
Y_STEP = 13  # ticks by which its operands may be read ahead
Y_SHARED_A = 14  # bytes
Y_SHARED_B = 15
Y_COMPLETE = 16  # ticks from operands read (WMMA) or from products (WMMA.TM) to the result
Y_SIGNATURE = 17  # equal for group instructions that go together
Y_FIBERS = 18  # of SETFIBER: wefts << 1 | all_scope
Y_SHARED_TICKS = 20  # of one weft's operands in shared memory
Y_GROUP_TICKS = 21  # of four's
Y_PORT_SLOTS = 22  # source slots that are read through ports at issue
Y_WORDS = 48

FLAG_REMOTE = 1  # an X instruction
FLAG_MATRIX = 2  # accumulates
FLAG_TESTS = 4  # tests and changes bits
FLAG_GROUP = 8
FLAG_TM = 16  # accumulators in tensor memory

GROUP_LOCAL, GROUP_OWN, GROUP_PLACE, GROUP_TENSOR = 0, 1, 2, 6

BIND_SLOTS = 4
BIND_CONSUME = 15  # mask of slots
BIND_HOLD = 16
BIND_SCOPED_SHIFT = 5  # mask of slots
BIND_READERS_SHIFT = 9  # mask of parts

# ---- warning
N_SM, N_SLOT, N_COUNT, N_REGISTER = 0, 1, 2, 3
NAMED_REGISTERS = 4
N_WORDS = 8
