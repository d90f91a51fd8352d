"""Three explanations of the time that FlashAttention 3 loses on H100, side by side: measured rows and both head sizes.

    python benchmarks/attention_contention.py [--shares 0.6,0.65,0.7]

Accumulators take half of the register read ports, which is their traffic; they take more (`tensor_port_share`); the
matrix unit runs empty when the warp group changes (`wgmma_switch_cycles`); the clock was lower than stated. Prints the
error of the rows of flashgpu-fa3 and the change of simulated time against the first. Not stored.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from heddle.ir.warp import WarpProgram
from heddle.machine import Machine, machine
from heddle.pipeline import compile_kernel, simulate_program
from heddle.study.case_file import Case, own_cases

FAMILY = "flashgpu-fa3"
TRAFFIC = 0.5
"""512 of 1,024 bytes that an SM reads from registers in a cycle: one fp32 read for each accumulator and step of k."""
SWITCH_CYCLES = 64
"""The tail of a wgmma, taken as not hidden when the group changes."""
LOWER_CLOCK = 1.44 / 1.5
"""The clock at which no further loss is needed, over the clock stated."""
PROBLEMS: Mapping[str, Mapping[str, int]] = {
    f"d {d} {'causal' if causal else 'full'}": {"head_dim": d, "causal": causal, "heads_q": 2048 // d}
    for d in (128, 64)
    for causal in (0, 1)
}


def hypotheses(gpu: Machine, shares: list[float]) -> dict[str, tuple[Machine, float]]:
    """Return name: (machine, factor of the stated clock)."""
    plain = gpu.replace(tensor_port_share=TRAFFIC, wgmma_switch_cycles=0)
    return {
        "half of the ports": (plain, 1.0),
        **{f"{share:g} of the ports": (plain.replace(tensor_port_share=share), 1.0) for share in shares},
        "half, empty at a change": (plain.replace(wgmma_switch_cycles=SWITCH_CYCLES), 1.0),
        "half, lower clock": (plain, LOWER_CLOCK),
    }


def seconds(program: WarpProgram, gpu: Machine, clock_mhz: float) -> float:
    """Return the time of a kernel that finds L2 cold."""
    return simulate_program(program, gpu, clock_mhz=clock_mhz, l2_state="cold").cycles / clock_mhz / 1e6


def errors(cases: list[Case], tried: Mapping[str, tuple[Machine, float]], base: Machine) -> dict[str, list[float]]:
    """Return the relative errors in time of each hypothesis on measured rows; prints them as they come."""
    found: dict[str, list[float]] = {name: [] for name in tried}
    for case in cases:
        program = compile_kernel("attention", base, {**case.sizes, "causal": int(case.causal)})
        for name, (gpu, factor) in tried.items():
            assert case.clock_mhz is not None
            found[name].append(seconds(program, gpu, case.clock_mhz * factor) * 1e6 / case.measured - 1)
        print(case.case_id, *(f"{found[name][-1]:+.1%}" for name in tried), flush=True)
    return found


def main() -> None:
    """Print one line a measured row, then one line a hypothesis."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    gpu = machine("h100")
    parser.add_argument("--shares", default=f"{gpu.tensor_port_share:g}", help="shares of the ports to try")
    options = parser.parse_args()
    tried = hypotheses(gpu, [float(share) for share in options.shares.split(",")])
    print("error on", ", ".join(tried))
    found = errors([case for case in own_cases() if case.family == FAMILY], tried, gpu)
    times: dict[str, dict[str, float]] = {name: {} for name in tried}
    for problem, sizes in PROBLEMS.items():
        program = compile_kernel("attention", gpu, {"batch": 8, "seqlen_q": 4096, **sizes})
        for name, (changed, factor) in tried.items():
            times[name][problem] = seconds(program, changed, 1500.0 * factor)
    first = next(iter(times.values()))
    for name, rows in found.items():
        mean, worst = sum(map(abs, rows)) / len(rows), max(map(abs, rows))
        change = ", ".join(f"{problem} {times[name][problem] / first[problem] - 1:+.1%}" for problem in PROBLEMS)
        print(f"{name}: mean {mean:.1%}, worst {worst:.1%}, bias {sum(rows) / len(rows):+.1%}; {change}")


if __name__ == "__main__":
    main()
