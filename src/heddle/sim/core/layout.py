"""Layout of the engine's flat int64 buffer `M` and of the program rows `P`.

`M` holds a header, then records of fixed size: one an SM (with its four subpartitions inside), one a warp context, a
CTA, a cluster slot, a warp group and an mbarrier, then work items, semaphores, the event heap and the per-pc accounts.
Records refer to each other by their address in `M`, so that no index arithmetic is needed on the way. Built by
`heddle.sim.state`; every word's kind (plain, cycles, ticks, linear) is known there for the exact fast-forward.

Names: H_ header, S_ SM, Q_ subpartition, W_ warp, C_ CTA, K_ cluster slot, G_ warp group, B_ mbarrier, A_ semaphore,
E_ event, P_ and X_ program row, L_ log record.
"""

from __future__ import annotations

INF = 1 << 60  # "not known yet", in cycles or ticks
TICK_BITS = 8  # ticks a cycle: 2**8
REASONS = 24  # columns of an account, more than len(Stall)
ACCOUNT_OFF = 23  # column of a pc's account: issues in which the warp did not act
CONTEXTS = 64  # most warp contexts of a subpartition: bits of a mask
BANKS = 4  # most register banks of a subpartition
PIPES = 24  # most pipes
SUBPARTITIONS = 4
MOST_READS = 256  # of a bank by one instruction, and one more
LEVELS = 4
COUNTERS = 6  # dependence counters a warp
RINGS = 32  # most stage rings of a program
GROUPS = 16  # closed groups of asynchronous copies that a wait can look back over
NAMED = 16  # named barriers a CTA
RUNS = 32  # runs of equal states that the log keeps between two issues of a warp
WAKE_SLOTS = 64  # cycles that the wake ring of a subpartition looks ahead
QUEUE_SLOTS = 32  # most entries of a load/store, bulk copy or tcgen05 queue
COLLECTIVES = 64  # warp-group matrix instructions remembered a warp group
INTERVALS = 256  # spans of the matrix unit that may lie ahead: 16 warp groups times the deepest queue
MATRIX_DEPTH = 16  # deepest queue of warp-group instructions
ITEM_SLOTS = 64  # dynamically fetched items that warps of a cluster may be apart

# ---- header
H_TIME = 0  # next cycle to simulate
H_LIVE = 1  # warps that have not exited
H_SMS = 2
H_SM = 3  # address of SM 0
H_NEXT = 4  # address of the next busy cycle of each SM
H_END = 5  # latest end of a warp or store seen so far
H_CLUSTER_SIZE = 6
H_SLOTS = 7
H_ATTRIBUTES = 8
H_ITEMS = 9  # address of work items
H_ITEM_COUNT = 10
H_QUEUE = 11  # address of the list of items that launch and dynamic schedules hand out
H_QUEUE_COUNT = 12
H_QUEUE_NEXT = 13
H_SCHEDULE = 14  # SCHEDULE_*
H_GRID = 15  # clusters of a static schedule
H_HEAP = 16  # address of the event heap
H_HEAP_COUNT = 17
H_HEAP_CAPACITY = 18
H_SEQUENCE = 19
H_PCS = 20  # address of the per-pc accounts
H_POLICY = 21  # scheduler: POLICY_*
H_LOG = 22  # 0 off, 1 issues, 2 all
H_LOG_SMS = 23  # SMs that are logged
H_LOG_COUNT = 24  # records in the log buffer
H_LOG_CAPACITY = 25
H_BANKS = 26
H_SHARE = 27  # 1 if an active register-accumulator MMA takes read-port cycles
H_SLACK = 28  # ticks
H_SWITCH = 29  # ticks
H_TAIL = 30  # ticks
H_WGMMA_DEPTH = 31
H_TCGEN05_DEPTH = 32
H_LSU_DEPTH = 33
H_ARRIVE = 34  # cycles until an mbarrier arrival counts
H_REMOTE = 35
H_LAUNCH = 36
H_NAMED = 37
H_NAMED_WARP = 38
H_CLUSTER_BARRIER = 39
H_NEAR = 40  # least cycles until a semaphore release is seen
H_SEMAPHORES = 41  # address
H_SEMAPHORES_WAIT = 42  # 1 if acquires wait (mode chip)
H_FETCH = 43  # ticks to fetch an instruction line; 0: all lines are there
H_LINES = 44  # instruction lines of the program
H_MBARRIERS = 45  # mbarriers a CTA
H_ORDINALS = 47  # ordinals between consecutive items of a static schedule's cluster: slots in use
H_FULL_LOG = 50  # log records that one cycle may need at most
H_ERROR = 51  # ERROR_*
H_ANCHOR = 52  # address of the warp whose loop ends are looked at by the fast-forward; 0: none
H_ANCHOR_HIT = 53  # set when the anchor took its loop branch in the cycle just simulated
H_ISSUED = 55  # warp instructions that were really simulated
H_WARPS = 56  # address of the first warp record
H_WARP_COUNT = 57
H_ITEM_DONE = 58  # address of the cycle in which each item's last warp left it
H_CTAS = 59
H_CLUSTERS = 60
H_CLUSTER_COUNT = 61
H_MB = 62  # address of the first mbarrier
H_GROUPS_PER_CTA = 63
H_WARPS_PER_CTA = 64
H_CONTEXTS = 65  # address of the list: for each warp of each CTA, slot by slot and SM by SM, its record
H_SEMAPHORE_COUNT = 67
H_PC_WORDS = 68
H_RINGS = 69  # mask of rings that mbarriers use; the stage of the others has no influence on time
H_ROOTS = 93  # address of roots (`core.phases`): of the mbarriers of a CTA, of the rings; then of each role's rings
PHASE_ABSOLUTE, PHASE_UNASKED = -1, -2
H_POLICY_ADDRESS = 66  # of a user's compiled policy
H_ANSWERS = 72  # 16 words: answers of a multicast
H_READS = 96  # MOST_READS words: ticks of n register reads while accumulators take their share of the ports
H_DEPTH = 352  # RINGS words: depth of each ring of the program
H_FIBER = 46  # 1: a program of mode fiber; 0: nothing of `layout_fiber` is looked at but meetings
H_BITS = 48  # 1: registers have full and empty bits
H_MEETING = 49  # set in a cycle in which wefts issue a SETFIBER together
H_WRITTEN = 54  # cycle from which the result of the instruction that issues now is there
H_READ = 70  # cycle in which its operands have been read
H_DRAINING = 71  # 1: some cluster has ended, but an operation on its registers has not started
H_FIBER_WORDS = 384  # `layout_fiber`
H_WORDS = 416

SCHEDULE_STATIC, SCHEDULE_LAUNCH, SCHEDULE_DYNAMIC = 0, 1, 2
POLICY_GTY, POLICY_GTO, POLICY_LRR, POLICY_USER = 0, 1, 2, 3
ERROR_NONE, ERROR_ITEM_SLOTS, ERROR_HEAP, ERROR_POLICY = 0, 1, 2, 3
ERROR_MEETING, ERROR_GROUP, ERROR_OPERATIONS = 4, 5, 6

# ---- subpartition, inside an SM record
Q_NEXT = 0  # next cycle in which something can happen here
Q_CANDIDATES = 1  # mask of warps that passed conditions a to d
Q_BLOCKED = 2  # those of them that failed e to g when last looked at
Q_LAST = 3  # bit index of the warp that issued last, -1 at first
Q_LAST_ROW = 4
Q_RING_USED = 5  # mask of wake slots in use
Q_FAR = 6  # mask of warps that wake beyond the ring
Q_FAR_NEXT = 7
Q_WARPS = 8  # address of the warp with bit 0
Q_LSU_COUNT = 9  # accesses so far
Q_TMEM_FREE = 10  # ticks
Q_SM = 11  # address of the SM
Q_INDEX = 12
Q_BIT_WAIT = 13  # mask of candidates that wait for a full or empty bit to be cleared
Q_SENSITIVE = 14  # mask of those that wait for something else, and would wait for a bit if one were set
Q_PORT = 16  # BANKS words, ticks
Q_PIPE = 20  # PIPES words, ticks
Q_LSU = 44  # QUEUE_SLOTS words, ticks: start of each access
Q_RING = 76  # WAKE_SLOTS masks
Q_HELD = 140  # mode fiber: mask of candidates that are not looked at before their W_SURE, ...
Q_HELD_NEXT = 141  # ... no later than the earliest of these
Q_QUEUE = 142  # address of its matrix queue
Q_CLEARS = 143  # address of its wheel of clears (`layout_fiber`, D_), ...
Q_CLEARS_USED = 144  # ... mask of slots in use, ...
Q_CLEARS_NEXT = 145  # ... cycle of the first ones
Q_PASSED = 150  # mask of candidates whose bits let them pass when last looked at, which nothing has changed since
Q_SET_AT = 151  # last cycle in which an issue here set bits that belong to FLAG_PLAIN
Q_WORDS = 152  # an odd number of cache lines

# ---- SM
S_INDEX = 0
S_LSU_FREE = 1  # ticks
S_TMA_FREE = 2
S_BACKLOG = 3
S_MATRIX_FREE = 4
S_MATRIX_OWNER = 5  # warp group that the matrix unit worked for last
S_TMA_COUNT = 6
S_TCGEN05_COUNT = 7
S_FETCH_FREE = 8
S_ACTIVE_HEAD = 9  # ring of intervals in which the matrix unit works on register accumulators
S_ACTIVE_TAIL = 10
S_SHARED_BYTES = 11
S_MATRIX_BUSY = 12  # ticks
S_LINES = 13  # address of the instruction lines' ready times
S_RANK = 14  # rank in the cluster
S_WHEEL = 15  # address of its wheel of changes of bits
S_DUE = 1224  # next cycle for which that has changes
S_LINK_FREE = 1225  # ticks: of the link to the other SMs of its cluster
S_TMA = 16  # QUEUE_SLOTS
S_TCGEN05 = 48  # QUEUE_SLOTS
S_PIPE = 80  # PIPES
S_ACTIVE = 104  # 2 * INTERVALS words, cycles: begin, end
S_QUARTERS = 616  # SUBPARTITIONS * Q_WORDS
S_WORDS = 1232

# ---- warp context
W_ROW = 0  # offset in P of the instruction that it waits to issue
W_STATE = 1
W_NEXT_OK = 2
W_REASON = 3  # of next_ok
W_DONE = 4  # cycles before this one are accounted
W_FETCH = 5  # the line of its instruction is there from this cycle on
W_WAKE = 6  # cycle in the wake ring
W_PHASE = 7  # 1 while condition d is waited for with a known end
W_SURE = 8  # a candidate is not looked at before: its pipe, which no queue precedes, is busy until then at least
W_OFF = 9  # bit `by` is set if this warp does not act in such instructions
W_SUB = 10  # address of its subpartition
W_BIT = 11  # its index there
W_SM = 12
W_CTA = 13
W_CLUSTER = 14
W_GROUP = 15  # warp group, 0 if none
W_RANK = 16  # in its role
W_CTA_RANK = 17
W_ITEM = 18  # address of its work item
W_ITEM_ORDINAL = 19  # place of its item among those of its SM group
W_LINK = 20  # next waiter of the same thing
W_ASK = 21  # parity that it waits to see completed, or the value of a semaphore
W_WARP = 22  # warp of the CTA
W_ROLE = 23
W_SLOT = 24
W_ENTRY = 25  # first row of its role
W_ABSENT = 26  # 1: role of the leader only, and this CTA is not
W_ITEM_INDEX = 27  # row of work.items
W_COUNTER = 28  # LEVELS
W_EXITS = 32  # LEVELS: how often the loop was left
W_AT_REST = 36  # COUNTERS, cycles
W_PENDING = 42  # COUNTERS: operations whose end is not known yet
W_CAUSE = 48  # COUNTERS: Stall of the operation that set it last
W_STAGE = 54  # RINGS
W_PARITY = 86  # RINGS
W_COPY_OPEN = 118  # latest answer of the open LDGSTS group
W_COPY_CLOSED = 119  # latest of all closed ones
W_COPY_COUNT = 120
W_COPY = 121  # GROUPS: end of the i-th closed group and all before
W_BULK_OPEN = 137
W_BULK_CLOSED = 138
W_BULK_COUNT = 139
W_BULK = 140  # GROUPS
W_MMA_COUNT = 156  # warp-group instructions issued
W_MMA_GROUPS = 157
W_MMA = 158  # GROUPS: instructions issued when the i-th group closed
W_MMA_COUNTERS = 174  # QUEUE_SLOTS: counters to release for instructions that have not formed: write | read << 4
W_TCGEN05_DONE = 206  # cycle
W_ITEM_NUMBER = 207  # items of this CTA before this one
W_ACCOUNT = 208  # REASONS
W_BOUND = 232  # LEVELS: count that the loop was last tested against
W_RUNS = 236  # with log 2: runs of equal states since the last issue, ...
W_RUN = 237  # ... RUNS pairs: reason, first cycle
W_PHASE_REASON = 301
W_VACANT = 303  # 1: a SETFIBER may start a weft here
W_OWNER = 304  # number of the weft: one that is masked and comes back has another
W_REGISTERS = 306  # address of the bits of its FIBER-thread's registers
W_OPS = 307  # address of its ring of matrix instructions in flight
W_OP_HEAD = 308
W_OP_TAIL = 309
W_GROUPED = 310  # group instructions issued
W_SIGNALS = 311  # WARPGROUP.SIGNAL issued
W_PLACE = 312  # its subpartition
W_VIEW = 313  # address of its view of E of the registers of subpartition 0, ...
W_VIEW_OWN = 314  # ... of its own, ...
W_FULL_OWN = 315  # ... and of their F
W_WAIT = 316  # bit that it waits for: address of its word << WORD_BITS | its place there
W_DENIED = 317  # cycle up to which the arbiter denies its instruction the ports for certain
W_HELD = 318  # in a program of mode fiber: the reason of the cycles up to W_SURE
W_TOUCHED = 319  # registers that it tests (layout_fiber.Y_TOUCHED) while it waits for something else
W_OTHER = 321  # first row of its other path; 0: there is none, or it has ended
W_WORDS = 328  # an odd number of cache lines, so that contexts spread over a cache
WORD_BITS = 6  # log2 of the bits of a word

FIBERS = 32  # of a warp

ST_DEAD, ST_TIMED, ST_CANDIDATE, ST_PENDING, ST_MBARRIER, ST_GMMA, ST_BARRIER, ST_SEMAPHORE = 0, 1, 2, 3, 4, 5, 6, 7
ST_MEET = 8  # at a SETFIBER

# ---- CTA
C_LIVE = 0
C_READ = 1  # cycle in which its stores' sources have been read
C_VISIBLE = 2  # cycle in which its stores are visible
C_MBARRIERS = 3  # address
C_CLUSTER = 4
C_RANK = 5
C_SM = 6
C_GROUPS = 7
C_NAMED = 8  # NAMED * 2 words: arrived, first waiter
C_FIRST = 40  # of its warps in the list at H_CONTEXTS
C_SLOT = 41
C_ARRIVED = 42  # wefts that wait at a SETFIBER
C_MEETS = 43  # 1: they issue it in this cycle
C_REST = 44  # cycle in which nothing is in flight on its registers, of what is known
C_UNKNOWN = 45  # operations whose end is not known
C_POOL_REST = 46  # the same of the pool, seen by all
C_POOL_UNKNOWN = 47
C_REGISTERS = 48  # address of the bits of its registers
C_QUADS = 49  # address of its groups of four wefts
C_WORDS = 56

# ---- cluster slot
K_LIVE = 0  # CTAs that have not ended
K_FREE = 1
K_ITEMS = 3  # dynamic: items fixed so far
K_ARRIVED = 4  # cluster barrier
K_WAITERS = 5
K_SM = 6  # address of the SM of rank 0
K_SLOT = 7
K_CTAS = 8  # address of rank 0's CTA record
K_DRAINS = 9  # 1: it has ended, but an operation on its registers has not started
K_ITEM = 16  # ITEM_SLOTS
K_WORDS = 80

# ---- warp group
G_FORMED = 0  # collectives that all four warps have issued
G_WARPS = 1  # addresses of the four warps
G_SIGNALS = 5  # WARPGROUP.SIGNAL that all four warps have issued
G_READ = 6  # cycle in which the operands of the youngest collective have been read
G_START = 8  # COLLECTIVES, cycles
G_END = 72  # COLLECTIVES, cycles: complete
G_WORDS = 136

# ---- mbarrier
B_ARRIVED = 0
B_BYTES = 1
B_PARITY = 2
B_COUNT = 3
B_WAITERS = 4
B_INDEX = 5  # in the program
B_ELEMENT = 6
B_CTA = 7
B_WORDS = 8

# ---- semaphore
A_VALUE = 0
A_WAITERS = 1
A_WORDS = 2

# ---- event
E_TIME = 0
E_SEQUENCE = 1
E_KIND = 2
E_WHERE = 3
E_ROW = 4
E_SM = 5
E_WORDS = 6

EV_ARRIVE = 0  # one arrival at mbarrier E_WHERE
EV_LAND = 1  # a bulk copy lands: bytes at mbarrier E_WHERE, shared memory of SM E_SM
EV_COPY = 2  # a cp.async lands in SM E_SM
EV_SEMAPHORE = 3  # semaphore E_WHERE grows
EV_LAUNCH = 4  # cluster slot E_WHERE is free
EV_BYTES = 5  # bytes of a copy into another CTA count at mbarrier E_WHERE
EV_LOST = 6  # was a signal to a CTA that has ended
EV_MEET = 7  # the wefts of CTA E_WHERE issue their SETFIBER
EV_BIT = 8  # change E_ROW of the bits of place E_WHERE becomes visible
EV_WRITE_BACK = 9  # matrix operation E_WHERE writes its accumulators
EV_FETCH = 10  # matrix operation E_WHERE fetches its operands
EV_CLEAR = 11  # in the next cycle the bits E_ROW of word E_WHERE are cleared, of SM | subpartition << SUB_SHIFT in E_SM

# ---- program row: what serves most instructions, ...
P_FLAGS = 0  # unit, who acts, queue, counters, FLAG_* (`core.rows`)
P_STALL = 1  # at least 1
P_PIPE = 2  # offset in the record of the subpartition (below Q_WORDS of PIPES) or, from S_PIPE on, of the SM
P_INITIATION = 3  # ticks
P_PORTS = 4  # reads of each bank, 8 bits a bank
P_OWN = 5  # own bank conflicts: e | e with reuse << 8 | 1 << 16 if reuse is possible at all
P_ACCOUNT = 6  # offset of the pc's account
P_COLD = 7  # address in P of the rest
P_SHIFT = 3
P_WORDS = 1 << P_SHIFT  # one cache line
# ... what the others need of all, ...
X_CAUSE = 0  # Stall of a warp that waits for its counters
X_WRITE = 1  # counter or -1
X_READ = 2
X_LATENCY = 3
X_QUEUE_CAUSE = 4  # Stall while the unit's queue is full
X_PIPE_CAUSE = 5  # Stall while the pipe is busy
X_PORTS_REUSE = 6  # reads of each bank if the reuse cache has what it can have
X_ADVANCE = 7  # mask of rings
# ... and what single units need
X_DURATION = 8  # ticks of the unit's server
X_SHARED = 9  # ticks that its bytes take of shared memory
X_EXTRA = 10  # unit-specific latency: cycles (requests, tensor memory) or ticks (tcgen05)
X_BYTES = 11
X_PENDING = 12
X_TARGET = 13  # row
X_COUNT = 14
X_COUNT_ATTRIBUTE = 15  # -1: immediate
X_BARRIER = 16  # first element among the CTA's mbarriers
X_BARRIER_RING = 17  # -1: none
X_BARRIER_OFFSET = 18
X_BARRIER_COUNT = 19
X_FLIP = 20
X_BARRIER_CTA = 21  # 0 own, 1 leader, 2 all, 3 peer
X_ID = 22  # named barrier, or item attribute of a semaphore or of SKIP
X_WARPS = 23
X_STREAM = 24
X_BASE = 25  # item attribute of the first block
X_LEVEL = 26
X_STEP = 27
X_OFFSET = 28
X_PART = 29
X_PARTS = 30
X_RANK_STRIDE = 31
X_CTA_STEP = 32
X_CTA_PART = 33
X_CTAS = 34
X_KIND = 35  # memory request: 0 load, 1 store, 2 reduce
X_GROUP_COPY = 36  # LDGSTS
X_LINE = 37
X_PC = 38
X_STAGE_RING = 39  # ring whose stage the log shows, -1 none
X_SOURCE = 27  # of a copy to the peer, which has no stream: ticks of shared memory to read it, ...
X_LINK = 28  # ... and of the link to send it
X_WORDS = 40

UNIT_MASK = 255  # bits 0 to 7
BY_SHIFT, BY_MASK = 8, 3  # BY_*
QUEUE_SHIFT, QUEUE_MASK = 10, 7  # QUEUE_*
COUNTERS_SHIFT, COUNTERS_MASK = 13, 3  # 1: write counter at t + e + L, 2: read counter at t + e + 2
WAIT_SHIFT, WAIT_MASK = 15, 63  # counters that it waits for
FLAG_CONDITION = 1 << 21  # has a condition d
FLAG_ADVANCE = 1 << 22  # steps rings
FLAG_REMOTE = 1 << 23  # an X instruction
FLAG_BITS = 1 << 24  # tests full and empty bits
FLAG_FULL = 1 << 25  # a register of its destination may be full
FLAGS_BY_OR_QUEUE = BY_MASK << BY_SHIFT | QUEUE_MASK << QUEUE_SHIFT
BY_WARP, BY_GROUP, BY_ROLE = 0, 1, 2
QUEUE_NONE, QUEUE_LSU, QUEUE_WGMMA, QUEUE_TMA, QUEUE_TCGEN05, QUEUE_WEFT = 0, 1, 2, 3, 4, 5

# ---- log record
L_KIND, L_SM, L_SLOT, L_WARP, L_PC, L_ITEM = 0, 1, 2, 3, 4, 5
L_BEGIN, L_END, L_DETAIL, L_STAGE, L_COUNTERS = 6, 7, 8, 9, 10
L_WORDS = 14
LOG_ISSUE, LOG_TENSOR, LOG_COPY, LOG_STORE, LOG_BARRIER, LOG_WAIT, LOG_COMPLETE = 0, 1, 2, 3, 4, 5, 6
