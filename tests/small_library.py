"""A Liberty file of a few cells with numbers that can be worked out by hand.

Delay of a gate: 10 ps and 1 ps a fF, its slew 5 ps and 2 ps a fF, whatever the input's slew; inputs have 1 fF (the
flop's clock 0.5). A change costs 1 fJ inside a gate, an edge of the flop's clock pin 0.25 fJ; 1 V.
"""

from heddle.cost.cells import Library, library_of
from heddle.cost.liberty import parse

_INDEX = 'index_1 ("0, 100"); index_2 ("0, 10");'


def _timing(related: str, kind: str, sense: str, extra: str = "") -> str:
    tables = "".join(
        f'{name} (grid) {{ {_INDEX} values ("{low}, {high}", "{low}, {high}"); }}\n'
        for edge in ("rise", "fall")
        for name, low, high in ((f"cell_{edge}", 10, 20), (f"{edge}_transition", 5, 25))
    )
    return f'timing () {{ related_pin : "{related}"; timing_type : {kind}; timing_sense : {sense}; {extra} {tables} }}'


def _power(related: str, energy: float) -> str:
    values = f'values ("{energy}, {energy}", "{energy}, {energy}");'
    pin = f'related_pin : "{related}";' if related else ""
    grid = f"{{ {_INDEX} {values} }}"
    return f"internal_power () {{ {pin} rise_power (grid) {grid} fall_power (grid) {grid} }}"


def _gate(name: str, area: float, inputs: str, function: str, sense: str) -> str:
    pins = "".join(f"pin ({pin}) {{ direction : input; capacitance : 1; }}\n" for pin in inputs)
    arcs = "".join(_timing(pin, "combinational", sense) + _power(pin, 1.0) for pin in inputs)
    leakage = 'leakage_power () { value : 7; when : "A"; } leakage_power () { value : 5; }'
    return (
        f'cell ({name}) {{ area : {area}\n {leakage} {pins} pin (Y) {{ direction : output; function : "{function}"; '
        f"{arcs} }} }}\n"
    )


def _flop() -> str:
    setup = 'values ("30, 30", "30, 30");'
    checks = "".join(f"{edge}_constraint (grid) {{ {_INDEX} {setup} }}" for edge in ("rise", "fall"))
    return f"""cell (DFF) {{ area : 4; cell_leakage_power : 9;
        ff (IQ, IQN) {{ next_state : "D"; clocked_on : "CK"; }}
        pin (D) {{ direction : input; capacitance : 1; timing () {{ related_pin : "CK"; timing_type : setup_rising;
            {checks} }} }}
        pin (CK) {{ direction : input; clock : true; capacitance : 0.5; {_power("", 0.25)} }}
        pin (Q) {{ direction : output; function : "IQ";
            {_timing("CK", "rising_edge", "non_unate")} {_power("CK", 1.0)} }}
    }}"""


def _latch() -> str:
    return f"""cell (LAT) {{ area : 3; latch (IQ, IQN) {{ data_in : "D"; enable : "G"; }}
        pin (D) {{ direction : input; capacitance : 1; }}
        pin (G) {{ direction : input; capacitance : 1; clock : true; }}
        pin (Q) {{ direction : output; function : "IQ"; {_timing("D", "combinational", "positive_unate")}
            {_timing("G", "rising_edge", "non_unate")} }} }}"""


TEXT = f"""library (small) {{ /* a comment
    of two lines */
    time_unit : "1ps"; capacitive_load_unit (1, ff); voltage_unit : "1V"; leakage_power_unit : "1nW"; nom_voltage : 1;
    lu_table_template (grid) {{ variable_1 : input_net_transition; variable_2 : total_output_net_capacitance; }}
    {_gate("INV", 1.0, "A", "!A", "negative_unate")}
    {_gate("BUF", 2.0, "A", "A", "positive_unate")}
    {_gate("NAND2", 1.5, "AB", "!(A B)", "negative_unate")}
    {_flop()} {_latch()}
}}"""


def library() -> Library:
    """Return the cells."""
    return library_of(parse(TEXT, "small.lib"))
