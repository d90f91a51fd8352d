"""Machine code of NVIDIA's compiler as warp programs, as far as its opcodes are modelled (docs/reference/lift.md)."""
