"""Attention on H100, today and with FIBER: measured, simulated, compared step by step. `make demo` runs this.

The measured case is one that Heddle ships, with its public source. A second run answers from the result store.
"""

import sys
from pathlib import Path

from rich.console import Console

from heddle.errors import HeddleError
from heddle.report.comparison import report
from heddle.study import runs
from heddle.study.case_file import own_cases
from heddle.study.compare import compare
from heddle.study.validate import validate

MEASURED = "flashgpu-fa3-b8-s4096-h16-d128-full"  # FlashAttention 3 at the sizes that are compared
SHORT = {"batch": 2, "seqlen_q": 1024}  # a timeline of a few tiles is enough to see the overlap
TIMELINE = Path("attention-h100-fiber.pftrace")


def main() -> int:
    """Print the measured case, the comparison and the name of the timeline; return the exit code."""
    wide = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    note = Console(stderr=True)
    note.print("simulating FlashAttention 3 on H100 and its FIBER form, step by step; a few minutes the first time ...")
    found = validate([case for case in own_cases() if case.case_id == MEASURED])
    for outcome in found.outcomes:
        measured = outcome.case.microseconds(outcome.case.measured)
        wide.print(
            f"{outcome.case.case_id}: measured {measured:.0f} us, simulated {outcome.simulated_us:.0f} us "
            f"({100 * outcome.error:+.1f} %)\n"
        )
    row = compare("attention", "h100", ablate=True)
    asked = runs.request("attention", "h100", mode="fiber", clock_mhz=row["clock_mhz"], texts=SHORT)
    slices = runs.write_timeline(asked, runs.run(asked), str(TIMELINE))
    wide.print(report(row))
    wide.print(f"timeline of {slices:,} slices: {TIMELINE} (open it at https://ui.perfetto.dev)")
    return 0 if row["fiber"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HeddleError as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)
