"""Is the library used that is asked for, is the netlist equal to its source, and does timing agree with OpenSTA?"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from heddle.cost.blocks import blocks
from heddle.cost.netlist import Netlist
from heddle.cost.synth import OSU018, Flow, library, slow_cells, synthesise
from heddle.cost.timing import analyse
from heddle.cost.tools import YOSYS, missing
from heddle.cost.unit_cost import conditions, cost_of
from heddle.cost.verilog import sources
from heddle.errors import UserError
from heddle.machine import machine
from small_library import library as small_library

SEVEN_NM = os.environ.get("HEDDLE_LIBERTY", "")
needs_yosys = pytest.mark.skipif(bool(missing([YOSYS])), reason=f"needs {YOSYS}")
needs_osu018 = pytest.mark.skipif(not OSU018.is_file(), reason="needs qflow-tech-osu018 of Debian")
needs_sta = pytest.mark.skipif(bool(missing(["sta"])), reason="needs opensta of Debian")
needs_seven_nm = pytest.mark.skipif(not Path(SEVEN_NM).is_file(), reason="needs a 7 nm Liberty file in HEDDLE_LIBERTY")


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"no Liberty file 'nowhere\.lib'"):
        library(Path("nowhere.lib"))


def test_no_cell_of_one_or_two_inputs_is_left_out() -> None:
    cells = small_library()
    assert all(len(cells.cells[name].inputs) > 2 for name in slow_cells(cells))


def mapped(name: str, liberty: Path, prove: bool = False) -> Netlist:
    block = blocks(machine("a100+fiber"))[name]
    return synthesise(block.module, block.parameters, Flow(tuple(sources()), liberty), prove)


@pytest.mark.slow
@needs_yosys
@needs_osu018
@pytest.mark.parametrize("name", ["selector", "read_port_arbiter"])
def test_a_netlist_with_its_buffers_is_proven_equal_to_the_source(name: str) -> None:
    assert cost_of(mapped(name, OSU018, prove=True)).cells > 10


STA = """read_liberty {liberty}
read_verilog netlist.v
link_design selector
create_clock -name c -period {period}
set_input_delay {input} -clock c [all_inputs]
set_output_delay {output} -clock c [all_outputs]
set_input_transition {slew} [all_inputs]
set_load {load} [all_outputs]
report_checks -path_delay max -digits 5
exit
"""


@pytest.mark.slow
@needs_yosys
@needs_osu018
@needs_sta
def test_timing_agrees_with_opensta(tmp_path: Path) -> None:
    netlist = mapped("selector", OSU018)
    around = conditions(netlist)
    (tmp_path / "netlist.v").write_text(verilog(netlist), "utf-8")
    ns, pf = 1e-3, 1e-3  # the library's units
    script = STA.format(
        liberty=OSU018, period=around.period * ns, input=around.input_delay * ns, output=around.output_delay * ns,
        slew=around.slew * ns, load=around.load * pf,
    )  # fmt: skip
    (tmp_path / "run.tcl").write_text(script, "utf-8")
    done = subprocess.run(["sta", "-no_splash", "run.tcl"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = re.search(r"(-?[\d.]+)\s+slack", done.stdout)
    assert found, done.stdout + done.stderr
    slack = around.period - analyse(netlist, around).needed
    assert float(found[1]) / ns == pytest.approx(slack, abs=5)


def verilog(netlist: Netlist) -> str:
    """Return a netlist as the Verilog that OpenSTA reads: a wire a net, ports bit by bit."""

    def wire(net: object) -> str:
        return {"0": "1'b0", "1": "1'b1", "x": "1'b0"}.get(str(net), f"n{net}")

    ports = {f"{name}_{k}": ("input", net) for name, nets in netlist.inputs.items() for k, net in enumerate(nets)}
    ports |= {f"{name}_{k}": ("output", net) for name, nets in netlist.outputs.items() for k, net in enumerate(nets)}
    lines = [f"module {netlist.name} ({', '.join(ports)});"]
    lines += [f"{direction} {name};" for name, (direction, _) in ports.items()]
    for name, (direction, net) in ports.items():
        lines.append(f"assign {wire(net)} = {name};" if direction == "input" else f"assign {name} = {wire(net)};")
    for count, one in enumerate(netlist.cells.values()):
        pins = ", ".join(f".{pin}({wire(net)})" for pin, net in one.nets.items())
        lines.append(f"{one.kind} u{count} ({pins});")
    return "\n".join([*lines, "endmodule"])


@pytest.mark.slow
@needs_yosys
@needs_seven_nm
@pytest.mark.parametrize("name", ["selector", "crossbar", "empty_home_lean"])
def test_the_clock_is_met_at_seven_nm(name: str) -> None:
    assert cost_of(mapped(name, Path(SEVEN_NM))).slack_ps >= 0
