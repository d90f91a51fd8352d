"""The text form of tile programs: `print_program` and `parse_program` are exact inverses."""

from heddle.ir.tile_parser import parse_program, read_program
from heddle.ir.tile_printer import print_program

__all__ = ["parse_program", "print_program", "read_program"]
