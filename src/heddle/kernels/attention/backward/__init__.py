"""Attention backward: gradients of Q, K and V as FlashAttention 2, 3 and 4 compute them, and with FIBER."""
