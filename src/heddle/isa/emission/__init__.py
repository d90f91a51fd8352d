"""Warp programs as instruction words and back: what a kernel of Heddle's compiler looks like as a binary.

`encode.program_words` gives words and a note, `decode.words_program` the program again (docs/reference/binary.md). The
mapping from Heddle's opcodes to forms of the instruction set is data: `forms/*.toml`.
"""
