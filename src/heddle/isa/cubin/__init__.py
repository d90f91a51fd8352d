"""Cubins: CUDA's ELF files of machine code, read, shown, checked and patched."""
