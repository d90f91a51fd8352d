"""Raw speed of the engine, fast-forward and log off: `python benchmarks/bench_engine.py`.

Thread CPU time, median of five, of the event loop alone (without set-up); and the ratio to a fixed calibration loop in
the same process, which does not depend on the computer as much.
"""

import statistics
import time

import numpy as np
from engine_programs import programs

from heddle.sim import Sim

REPEATS = 5
CALIBRATION_ROUNDS = 2_000_000


def calibration_s() -> float:
    """Return the CPU seconds of a fixed loop of plain Python."""
    begin = time.thread_time()
    value = 1
    for i in range(CALIBRATION_ROUNDS):
        value = (value * 1103515245 + i) & 0x7FFFFFFF
    return time.thread_time() - begin


def main() -> None:
    """Print one line a program."""
    calibration = statistics.median(calibration_s() for _ in range(REPEATS))
    print(f"calibration loop: {CALIBRATION_ROUNDS / calibration / 1e6:.1f} million rounds a second")
    for name, program, device in programs():
        times, result = [], None
        for _ in range(REPEATS + 1):
            sim = Sim(device, program, mode="sm", fast_forward=False)
            begin = time.thread_time()
            sim.run()
            times.append(time.thread_time() - begin)
            result = sim.result()
        assert result is not None
        speed = result.warp_instructions / statistics.median(np.array(times[1:]))
        ratio = speed * calibration / CALIBRATION_ROUNDS
        print(f"{name}: {speed / 1e6:.1f} million warp instructions a second, {ratio:.2f} a calibration round")


if __name__ == "__main__":
    main()
