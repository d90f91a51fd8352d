"""Attention forward: FlashAttention 2, 3 and 4 as they run today, and the kernels written for FIBER."""
