"""The variants of attention that slow tests check for each kernel: head sizes, masks, odd lengths, head groupings."""

VARIANTS = [
    {"head_dim": d, "causal": causal, "seqlen_q": q, "seqlen_kv": kv, "heads_q": heads, "heads_kv": kv_heads}
    for d in (64, 128, 256)
    for causal in (0, 1)
    for q, kv in ((200, 333), (333, 200), (512, 512))
    for heads, kv_heads in ((2, 2), (8, 1))
]
