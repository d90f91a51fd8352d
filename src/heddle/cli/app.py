"""The command `heddle`: its sub-commands, and how errors become messages and exit codes.

Exit codes: 0 success, 1 a check failed (or a bug of ours), 2 bad use, bad input or an output that cannot be written,
130 interrupted. Results go to standard output,
everything else to standard error. A traceback is shown only with HEDDLE_DEBUG=1.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer
from typer.exceptions import TyperException

from heddle.cli import (
    asm,
    bench,
    check,
    compare,
    compile,
    disasm,
    draw,
    kernels,
    lift,
    machines,
    reproduce,
    rtl,
    run,
    sass,
    tune,
    validate,
)
from heddle.cli.common import spread_settings
from heddle.errors import HeddleError

INTERRUPTED = 130
GARBAGE_THRESHOLDS = (100_000, 50, 100)
"""Python looks for cycles of garbage after so many new objects; programs are large and have none (a seventh of the time
of the compiler with Python's own thresholds)."""

app = typer.Typer(
    name="heddle",
    help="Simulate GPU kernels on A100, H100, H200 and B200, cycle by cycle, without a GPU.",
    epilog="Example: heddle run gemm --gpu h100 --set m=4096 --set n=4096 --set k=4096",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"heddle {version('heddle-gpu')}")
        raise typer.Exit


COMMANDS = (
    machines, kernels, run, draw, compare, reproduce, tune, check, compile, lift, asm, disasm, validate, bench,
)  # fmt: skip
for module in COMMANDS:
    app.command(name=module.__name__.rpartition(".")[2], epilog=f"Example: {module.EXAMPLE}")(module.command)
app.add_typer(rtl.app, name="rtl")
app.add_typer(sass.app, name="sass")


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Declare what stands before a sub-command."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    with _stoppable():
        return _main(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: list[str]) -> int:
    try:
        code = _run(arguments)
        sys.stdout.flush()  # while an error can still become a message
        return code
    except BrokenPipeError:
        _drop_output()  # the reader left
        return 0
    except OSError as problem:
        _drop_output()
        what = f"cannot use {problem.filename!r}" if problem.filename else "cannot write the output"
        return _failed(f"{what}: {problem.strerror or problem}", 2, problem)


def _run(arguments: list[str]) -> int:
    """Run one command; errors become messages, but for those of the streams that the messages go to."""
    try:
        code = app(spread_settings(arguments) or ["--help"], prog_name="heddle", standalone_mode=False)
        if code == INTERRUPTED:  # typer's answer to a KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        return _failed("interrupted; what was finished is kept, run the same command to go on", INTERRUPTED)
    except SystemExit:  # typer's answer to a reader that left
        raise BrokenPipeError from None
    except TyperException as problem:
        return _failed(f"{problem.format_message()}\n  hint: `heddle --help` and `heddle COMMAND --help` say more", 2)
    except HeddleError as problem:
        return _failed(str(problem), problem.exit_code, problem)
    except OSError:
        raise
    except Exception as problem:
        return _failed(_report_request(problem), 1, problem)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM end a command; the handler from before comes back, since new processes inherit an ignored signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:
    """End a stopped run as an interrupted one, worker processes too; `timeout` sends the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _drop_output() -> None:
    """Let what is still buffered for standard output go nowhere, so that no second error comes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
