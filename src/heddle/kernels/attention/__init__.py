"""Attention: O = softmax(Q K^T / sqrt(d)) V, head by head, as FlashAttention 2, 3 and 4 compute it."""
