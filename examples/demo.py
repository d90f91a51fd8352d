"""GEMM on three GPUs: simulated against published, and where the warp cycles go. `make demo` runs this.

The cases are those that Heddle ships, each with its public source. A second run answers from the result store.
"""

import sys

from rich.console import Console
from rich.table import Table

from heddle.errors import HeddleError
from heddle.metrics.render import percent, stall_table
from heddle.study.case_file import own_cases
from heddle.study.validate import validate

SHOWN = (
    "bbg-011",  # A100, BitBLAS, 8192 x 8192 x 8192
    "dg-bf16-035",  # H100, DeepGEMM, L2 flushed between runs
    "w8-sq-009",  # H100, cuBLAS, warm loop
    "tkb200-001",  # B200, ThunderKittens
    "mamf-005",  # B200, cuBLAS
)
COLUMNS = ("GPU", "m x n x k", "measured by", "measured us", "simulated us", "error", "clock MHz", "tensor use", "tile")


def main() -> int:
    """Print the table and the stall breakdown; return the exit code."""
    wide = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    cases = [case for case in own_cases() if case.case_id in SHOWN]
    Console(stderr=True).print(f"simulating {len(cases)} GEMMs, several tiles each; about a minute the first time ...")
    found = validate(cases)
    table = Table(*COLUMNS, title="GEMM, simulated against published", title_justify="left")
    for outcome in found.outcomes:
        case, row = outcome.case, outcome.row
        table.add_row(
            case.gpu,
            " x ".join(str(case.sizes[name]) for name in "mnk"),
            case.implementation,
            f"{case.microseconds(case.measured):.1f}",
            f"{outcome.simulated_us:.1f}",
            f"{100 * outcome.error:+.1f} %",
            f"{row['clock_mhz']:.0f}",
            percent(row["tensor_utilization"]),
            str(row["params"].get("config", "")),
        )
    last_of_gpu = {outcome.case.gpu: outcome for outcome in found.outcomes}
    for gpu, outcome in last_of_gpu.items():
        wide.print(f"\n{gpu}, {outcome.case.case_id}")
        wide.print(stall_table(outcome.row))
    wide.print()
    wide.print(table)
    for absent in found.not_modelled:
        wide.print(f"not modelled: {absent.case.case_id}: {absent.why}")
    return 1 if found.not_modelled else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HeddleError as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)
