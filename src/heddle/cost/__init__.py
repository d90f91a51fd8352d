"""The hardware units of FIBER: their Verilog beside the simulator's own units, proofs, synthesis, and their cost."""
