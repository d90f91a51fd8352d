"""The programs that pass between the rooms: tiles as a kernel writes them, warp instructions as they are simulated."""

from heddle.ir.tile import TileProgram
from heddle.ir.tile_parser import parse_program as parse_tile_program
from heddle.ir.tile_printer import print_program as print_tile_program
from heddle.ir.tile_verify import verify as verify_tile_program
from heddle.ir.warp import WarpProgram

__all__ = ["TileProgram", "WarpProgram", "parse_tile_program", "print_tile_program", "verify_tile_program"]
