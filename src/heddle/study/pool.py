"""Run many independent simulations on the cores of this machine; results come in the order of the questions.

A unit of work is a pure function of plain data. The store keeps what was finished, so a killed run resumes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import TypeVar

from heddle.errors import InternalError

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Progress = Callable[[int, int, str], None]


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    work: Callable[[Question], Answer],
    questions: Sequence[Question],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Answer]:
    """Return work(question) for all questions, in `jobs` processes (all cores by default; one: this process).

    The first error ends the run: what waits is cancelled, and the error is raised here.
    """
    report = progress or (lambda done, total, what: None)
    jobs = min(jobs or cores(), len(questions))
    if jobs <= 1:
        answers = []
        for question in questions:
            answers.append(work(question))
            report(len(answers), len(questions), "")
        return answers
    return _in_processes(work, questions, jobs, report)


def _in_processes(
    work: Callable[[Question], Answer], questions: Sequence[Question], jobs: int, report: Progress
) -> list[Answer]:
    others = set(active_children())
    # spawn: a forked child would share the threads of Polars in an unknown state
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            with _interrupts_held():
                futures = [pool.submit(work, question) for question in questions]
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                report(done, len(futures), "")
        except BrokenProcessPool:
            raise InternalError(
                "a worker process died without a Python error, as when compiled code writes where it must not",
                hint="with --jobs 1 the run stops at the case that does it; what was finished is kept",
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - others:  # what it computes nobody asks for any more
                child.terminate()
            raise
        return [future.result() for future in futures]


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back; processes that start meanwhile never get any, so that only this one answers."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
