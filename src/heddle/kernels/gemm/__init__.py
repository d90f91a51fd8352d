"""GEMM: C[m, n] = A[m, k] B[n, k]^T on A100, H100 and B200."""
