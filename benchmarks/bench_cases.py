"""What the answer to a measured case costs the first time: CPU seconds and peak memory, each in a fresh process.

    python benchmarks/bench_cases.py CASES.csv [--kernel gemm] [--gpu a100] [--size a100,fp16,16384,16384,16384]

Nothing is stored in between, so that the choice of the tile and the search for the clock are part of it. CPU seconds
are those of the process from its start, with imports and loading the core. Prints every case and the two worst.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GEMM_SIZE = ("gpu", "dtype", "m", "n", "k")


def answer(question: str) -> None:
    """Answer one question and print what it cost as JSON: `CASES.csv:case_id`, or gpu,dtype,m,n,k."""
    from heddle.study.case_file import read_cases
    from heddle.study.runs import request, request_of, run

    if question.count(",") == len(GEMM_SIZE) - 1:
        sizes = dict(zip(GEMM_SIZE, question.split(","), strict=True))
        asked = request("gemm", sizes.pop("gpu"), texts=sizes)
    else:
        path, case_id = question.rsplit(":", 1)
        asked = request_of(next(case for case in read_cases(Path(path)) if case.case_id == case_id))
    row = run(asked)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {"cpu_s": time.process_time(), "peak_mb": used.ru_maxrss / 1024, "time_us": row["time_us"]}
    print(json.dumps({**cost, "config": row["params"].get("config"), "choice": row["choice"]}))


def measured(question: str) -> dict[str, Any]:
    """Return the cost of one question in a process of its own with an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--answer", question],
            env={**os.environ, "HEDDLE_CACHE": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]
        return {"failed": lines[-1]}  # the message of the exception, without its hint
    return dict(json.loads(done.stdout))


def main() -> None:
    """Measure the cases of a file, and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", help="a file of cases")
    parser.add_argument("--kernel", default="gemm")
    parser.add_argument("--gpu", help="only this GPU")
    parser.add_argument("--size", action="append", default=[], metavar="GPU,DTYPE,M,N,K", help="a GEMM of this size")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer(options.answer)
        return
    from heddle.study.case_file import read_cases

    cases = read_cases(Path(options.cases)) if options.cases else []
    chosen = [c for c in cases if c.kernel == options.kernel and options.gpu in (None, c.gpu)]
    questions = [f"{options.cases}:{case.case_id}" for case in chosen] + options.size
    rows = []
    for question in questions:
        cost, name = measured(question), question.rsplit(":", 1)[-1]
        if "failed" in cost:
            print(f"{name:32} {cost['failed']}", flush=True)
            continue
        rows.append((name, cost))
        print(f"{name:32} {cost['cpu_s']:6.1f} s {cost['peak_mb']:6.0f} MB  {cost['config']}", flush=True)
    for figure in ("cpu_s", "peak_mb") if rows else ():
        name, cost = max(rows, key=lambda row: row[1][figure])
        print(f"worst {figure}: {cost[figure]:.1f} ({name})")


if __name__ == "__main__":
    main()
