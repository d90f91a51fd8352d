"""`python -m heddle.isa.probe`: measure the table of an architecture from sample words of compiled code."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path

from heddle.errors import HeddleError
from heddle.isa.probe.build import build
from heddle.isa.probe.learn import learn
from heddle.isa.probe.opcode import Opcode, opcode_of
from heddle.isa.probe.oracle import Learner, run
from heddle.isa.table import check_architecture, code_of
from heddle.isa.words import from_bytes, to_ints

SAMPLES = 300
"""Words of an opcode that are asked for, those with different modifier bits first."""
_MODIFIER_BITS = ((1 << 91) - 1) & ~((1 << 72) - 1)


def samples_of(words: list[int]) -> dict[int, list[int]]:
    """Return for each opcode up to 300 words, with as many different modifiers as there are."""
    by_code: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for word in words:
        same = by_code[code_of(word)][word & _MODIFIER_BITS]
        if len(same) < 2:
            same.append(word)
    return {
        code: [words[turn] for turn in range(2) for words in groups.values() if turn < len(words)][:SAMPLES]
        for code, groups in sorted(by_code.items())
    }


def main() -> int:
    """Learn the opcodes of all words of the given files and write the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m heddle.isa.probe", description=__doc__)
    parser.add_argument("architecture", help="sm_80, sm_90 or sm_100")
    parser.add_argument("words", nargs="+", type=Path, help="files of raw 16-byte words: code sections of cubins")
    parser.add_argument("-o", "--output", required=True, type=Path, help="the table file to write")
    arguments = parser.parse_args()
    try:
        architecture = check_architecture(arguments.architecture)
        words = [word for path in arguments.words for word in to_ints(from_bytes(path.read_bytes()))]
        opcodes: list[Opcode] = [opcode_of(code, found, architecture) for code, found in samples_of(words).items()]
        learners: dict[Hashable, Learner] = {opcode.code: learn(opcode) for opcode in opcodes}
        run(learners, architecture, _report)
        arguments.output.write_text(build(opcodes, architecture, _report), encoding="utf-8")
    except (HeddleError, OSError) as error:
        print(f"heddle.isa.probe: {error}", file=sys.stderr)
        return 2
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
