"""Front-ends: what makes warp programs from something else than the kernel language."""
