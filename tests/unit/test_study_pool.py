"""Do worker processes answer in order, and does an interrupt end them all with one voice?"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from heddle.study.pool import run_all

def work(name):
    Path(name).write_text(str(os.getpid()))
    time.sleep(1000)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit an ignored one
    try:
        run_all(work, ["a", "b", "c", "d"], jobs=2)
    except KeyboardInterrupt:
        print("interrupted")
"""


def wait_for(*files: Path) -> list[int]:
    """Return the process numbers in files, once they are there."""
    while not all(file.exists() and file.read_text(encoding="utf-8") for file in files):
        time.sleep(0.05)
    return [int(file.read_text(encoding="utf-8")) for file in files]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system has no signal masks")
def test_an_interrupt_ends_every_process_and_only_one_speaks(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    main = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workers = wait_for(tmp_path / "a", tmp_path / "b")
    os.killpg(main.pid, signal.SIGINT)
    assert main.communicate() == ("interrupted\n", "")
    assert not (tmp_path / "c").exists()
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
