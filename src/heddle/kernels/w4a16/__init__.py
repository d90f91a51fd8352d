"""Products of fp16 activations with weights of 4 or fewer bits that are made fp16 on the way (W4A16)."""
