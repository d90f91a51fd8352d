"""The sizes that every launch of attention takes, forward and backward."""

from __future__ import annotations

from heddle.kernels._kernel import Parameter
from heddle.kernels.attention.check import HEAD_DIMS

SIZES = (
    Parameter("batch", int, 8, "sequences", small=1),
    Parameter("heads_q", int, 16, "query heads", small=2),
    Parameter("heads_kv", int, 0, "key and value heads, a divisor of heads_q; 0: as many", least=0),
    Parameter("seqlen_q", int, 4096, "queries of a sequence"),
    Parameter("seqlen_kv", int, 0, "keys of a sequence; 0: as many as queries", least=0),
    Parameter("head_dim", int, 128, "elements of a head; pad others to the next", choices=HEAD_DIMS),
    Parameter("causal", int, 0, "1: a query sees no later key, the masks aligned to the end", choices=(0, 1)),
)
