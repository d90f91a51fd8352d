"""Measure the instruction tables: learn what nvdisasm prints for the words of an opcode by flipping their bits.

`python -m heddle.isa.probe --help` says how. Nothing here is needed to use the tables.
"""
