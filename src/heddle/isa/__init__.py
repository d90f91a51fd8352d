"""The instruction set: 128-bit words of sm_80, sm_90 and sm_100, the FIBER fields in their unused bits, and text.

`codec.decode` turns words into instructions and arrays, `codec.encode` is its inverse, bit for bit, for any word.
"""
