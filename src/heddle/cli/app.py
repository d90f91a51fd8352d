"""The command `heddle`: its sub-commands, and how errors become messages and exit codes.

Exit codes: 0 success, 1 a check failed (or a bug of ours), 2 bad use or bad input. Results go to standard output,
everything else to standard error. A traceback is shown only with HEDDLE_DEBUG=1.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback

import typer
from typer.exceptions import TyperException

from heddle.cli import bench, check, compile, kernels, machines, run, validate
from heddle.errors import HeddleError

app = typer.Typer(
    name="heddle",
    help="Simulate GPU kernels on A100, H100 and B200, cycle by cycle, without a GPU.",
    epilog="Example: heddle run gemm --gpu h100 --set m=4096 --set n=4096 --set k=4096",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (machines, kernels, run, check, compile, validate, bench):
    app.command(name=module.__name__.rpartition(".")[2], epilog=f"Example: {module.EXAMPLE}")(module.command)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stopped run ends its worker processes, too
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(given or ["--help"], prog_name="heddle", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Abort:
        return _failed("interrupted", 130)
    except KeyboardInterrupt:
        return _failed("interrupted; what was finished is kept, run the same command to go on", 130)
    except TyperException as problem:
        return _failed(f"{problem.format_message()}\n  hint: `heddle --help` and `heddle COMMAND --help` say more", 2)
    except HeddleError as problem:
        return _failed(str(problem), problem.exit_code, problem)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; no second error at exit
        return 0
    except Exception as problem:
        return _failed(_report_request(problem), 1, problem)


def _failed(message: str, code: int, problem: BaseException | None = None) -> int:
    if problem is not None and os.environ.get("HEDDLE_DEBUG"):
        traceback.print_exception(problem, file=sys.stderr)
    print(f"heddle: {message}", file=sys.stderr)
    return code


def _report_request(problem: Exception) -> str:
    """Word an unexpected exception: what, where in our source, and what to send."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return (
        f"internal error: {type(problem).__name__}: {problem}{place}\n"
        f"  this is a bug of Heddle; please report it with the command:\n    heddle {' '.join(sys.argv[1:])}\n"
        "  hint: HEDDLE_DEBUG=1 shows the traceback"
    )
