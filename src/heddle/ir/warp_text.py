"""The text form of warp programs: `print_program` and `parse_program` are exact inverses.

The format is described, with an example that the tests execute, in docs/reference/warp_program.md. The printer is in
`heddle.ir.warp_printer`, the parser in `heddle.ir.warp_parser`; both are driven by the dataclasses of `heddle.ir.warp`,
so that a new field with a default needs no change here.
"""

from heddle.ir.warp_parser import parse_program, read_program
from heddle.ir.warp_printer import print_program

__all__ = ["parse_program", "print_program", "read_program"]
