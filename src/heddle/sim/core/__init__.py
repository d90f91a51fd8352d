"""The engine itself, in the subset of Python that `sim.native` compiles."""
