"""Heddle: simulate GPU kernels on A100, H100 and B200, and the FIBER execution model."""
