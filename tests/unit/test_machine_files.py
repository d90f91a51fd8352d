"""Do machine files load, inherit and override, and do mistakes point at their line?"""

from pathlib import Path

import pytest

from heddle.errors import UserError
from heddle.machine import machine, with_fiber
from heddle.machine.positions import locate


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    """Write a machine file and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    """Return the message with which a file is refused, the folder left out."""
    with pytest.raises(UserError) as caught:
        machine(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_plain_numbers_override_the_preset(tmp_path: Path) -> None:
    gpu = machine(write(tmp_path, 'inherits = "h100"\nsms = 144\ndram_gbytes_per_s = 4000\n'))
    assert (gpu.sms, gpu.dram_gbytes_per_s, gpu.name) == (144, 4000.0, "mine")


def test_a_plain_number_gets_its_file_and_line_as_source(tmp_path: Path) -> None:
    path = write(tmp_path, 'inherits = "h100"\n\nsms = 144\n')
    assert machine(path).provenance["sms"].source == f"{path}:3"


def test_inherited_values_keep_their_source(tmp_path: Path) -> None:
    gpu = machine(write(tmp_path, 'inherits = "h100"\nsms = 144\n'))
    assert gpu.provenance["l2_bytes"] == machine("h100").provenance["l2_bytes"]


def test_an_opcode_keeps_what_is_left_out(tmp_path: Path) -> None:
    gpu = machine(write(tmp_path, 'inherits = "h100"\n[ops.MUFU]\ninitiation_cycles = 4\n'))
    assert (gpu.ops["MUFU"].initiation_cycles, gpu.ops["MUFU"].latency_cycles, gpu.ops["MUFU"].pipe) == (4.0, 23, "sfu")


def test_files_inherit_from_files(tmp_path: Path) -> None:
    write(tmp_path, 'inherits = "a100"\nsms = 100\n', "base.toml")
    gpu = machine(write(tmp_path, 'inherits = "base.toml"\nmax_clock_mhz = 1500\n'))
    assert (gpu.sms, gpu.max_clock_mhz, gpu.architecture) == (100, 1500.0, "sm_80")


def test_a_new_pipe_can_be_used(tmp_path: Path) -> None:
    text = '[pipes]\nexp = { scope = "subpartition" }\n[ops]\nMUFU = { pipe = "exp", initiation_cycles = 2 }\n'
    gpu = machine(write(tmp_path, 'inherits = "h100"\n' + text))
    assert gpu.ops["MUFU"].pipe == "exp"


def test_a_loop_of_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 'inherits = "mine.toml"\n', "other.toml")
    path = write(tmp_path, 'inherits = "other.toml"\n')
    assert "the files inherit from each other" in refusal(path)


REFUSED = {
    "unknown field": (
        'inherits = "h100"\nsmss = 140\n',
        "mine.toml:2: unknown machine field 'smss'\n  smss = 140\n  ^\n"
        "  hint: did you mean 'sms'? all fields: `heddle machines h100`, docs/reference/machine.md",
    ),
    "negative": (
        'inherits = "h100"\nsms = -4\n',
        "mine.toml:2: sms = -4: input should be greater than 0\n  sms = -4\n        ^\n"
        "  hint: sms [SMs]: streaming multiprocessors enabled",
    ),
    "wrong type": (
        'inherits = "h100"\nsms = "many"\n',
        "mine.toml:2: sms = 'many': input should be a valid integer\n  sms = \"many\"\n        ^\n"
        "  hint: sms [SMs]: streaming multiprocessors enabled",
    ),
    "a fraction of a cycle": (
        'inherits = "h100"\nl2_near_latency_cycles = 260.5\n',
        "mine.toml:2: l2_near_latency_cycles = 260.5: input should be a valid integer\n"
        "  l2_near_latency_cycles = 260.5\n                           ^\n"
        "  hint: l2_near_latency_cycles [cycles]: LDG that hits the near partition, unloaded",
    ),
    "unknown pipe": (
        'inherits = "a100"\n[ops]\nFFMA = { pipe = "fmaa" }\n',
        "mine.toml:3: unknown pipe of ops.FFMA 'fmaa'; "
        "allowed: alu, branch, fma, fp16, fp64, lsu, sfu, sync, tensor, uniform\n"
        "  FFMA = { pipe = \"fmaa\" }\n                  ^\n  hint: did you mean 'fma'?",
    ),
    "too fine an interval": (
        'inherits = "a100"\n[ops]\nFFMA = { initiation_cycles = 2.001 }\n',
        "mine.toml:3: ops.FFMA.initiation_cycles = 2.001: input should be a multiple of 0.00390625\n"
        "  FFMA = { initiation_cycles = 2.001 }\n                               ^",
    ),
    "unknown preset": (
        'inherits = "h10"\n',
        "mine.toml:1: unknown machine 'h10'; presets: a100, b200, h100, h200, or the path of a TOML file\n"
        "  inherits = \"h10\"\n             ^\n  hint: did you mean 'h100'? `heddle machines` lists the presets",
    ),
    "malformed": (
        'inherits = "h100"\nsms = = 3\n',
        "mine.toml:2: not a valid TOML file: invalid value\n  sms = = 3\n        ^",
    ),
    "wrong unit": (
        'inherits = "h100"\nl2_bytes = { value = 60, unit = "MiB" }\n',
        "mine.toml:2: l2_bytes: the unit is 'B', got 'MiB'\n"
        '  l2_bytes = { value = 60, unit = "MiB" }\n                                  ^\n'
        "  hint: convert the value; units are fixed",
    ),
    "wrong kind": (
        'inherits = "h100"\nsms = { value = 60, kind = "guessed" }\n',
        "mine.toml:2: sms: unknown kind 'guessed'; allowed: specified, measured, derived, fitted, assumed\n"
        '  sms = { value = 60, kind = "guessed" }\n                             ^',
    ),
    "unknown key": (
        'inherits = "h100"\nsms = { value = 60, comment = "x" }\n',
        "mine.toml:2: sms: unknown key 'comment'; allowed: value, unit, kind, source, note\n"
        '  sms = { value = 60, comment = "x" }\n                                ^',
    ),
    "not a table": (
        'inherits = "h100"\nops = 3\n',
        "mine.toml:2: ops = 3: needs a table of entries\n  ops = 3\n        ^",
    ),
    "too large": (
        'inherits = "h100"\nsms = 99999999999999999999\n',
        "mine.toml:2: sms = 99999999999999999999: input should be less than or equal to 16384\n"
        "  sms = 99999999999999999999\n        ^\n  hint: sms [SMs]: streaming multiprocessors enabled",
    ),
    "too small": (
        'inherits = "h100"\ndram_gbytes_per_s = 1e-300\n',
        "mine.toml:2: dram_gbytes_per_s = 1e-300: input should be greater than or equal to 0.000001\n"
        "  dram_gbytes_per_s = 1e-300\n                      ^\n"
        "  hint: dram_gbytes_per_s [GB/s]: achieved DRAM bandwidth",
    ),
    "an opcode without parts": (
        'inherits = "h100"\n[ops]\nFFMA = 3\n',
        "mine.toml:3: ops.FFMA = 3: needs a table of pipe, initiation_cycles, latency_cycles\n  FFMA = 3\n         ^",
    ),
    "an unknown part": (
        'inherits = "h100"\n[ops.FFMA]\nlatency = 3\n',
        "mine.toml:3: ops.FFMA.latency = 3: unknown key; allowed: pipe, initiation_cycles, latency_cycles\n"
        "  latency = 3\n            ^",
    ),
    "no value": (
        'inherits = "h100"\nsms = { kind = "assumed" }\n',
        'mine.toml:2: sms has no value\n  sms = { kind = "assumed" }\n        ^\n  hint: for example { value = 4 }',
    ),
    "a source that is no text": (
        'inherits = "h100"\nsms = { value = 3, source = 5 }\n',
        "mine.toml:2: sms: source = 5 must be text\n  sms = { value = 3, source = 5 }\n                              ^",
    ),
    "an empty name": (
        'inherits = "h100"\nname = ""\n',
        "mine.toml:2: name = '' must be a short name of printable letters\n  name = \"\"\n         ^",
    ),
    "near and far": (
        'inherits = "h100"\nl2_near_latency_cycles = 600\n',
        "mine.toml:2: l2_near_latency_cycles = 600 must not exceed l2_far_latency_cycles = 415\n"
        "  l2_near_latency_cycles = 600\n                           ^\n"
        "  hint: change one of them, in this file or in the one it inherits from",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]
    assert refusal(write(tmp_path, text)) == message


def test_a_missing_field_is_named_with_the_file(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, 'name = "mine"\n')) == (
        "mine.toml: description is missing\n"
        "  hint: description [text]: which product the numbers describe; what does not inherit must give every value"
    )


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    assert "mine.toml: name is missing" in refusal(write(tmp_path, ""))


def test_a_contradiction_with_an_inherited_value_names_both_files(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, 'inherits = "h100"\nsubpartitions = 3\n'))
    assert "mine.toml: vector_registers = 2048 must be a multiple of subpartitions = 3" in message
    assert "the value is that of h100.toml:" in message


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    assert refusal(path) == "machine file mine.toml is not UTF-8 text"


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'\xef\xbb\xbfinherits = "h100"\n')
    assert machine(path).sms == machine("h100").sms


def test_an_unknown_name_is_an_unknown_machine() -> None:
    with pytest.raises(UserError, match=r"unknown machine 'b20'; presets: .*\n.*did you mean 'b200'"):
        machine("b20")


@pytest.mark.parametrize("name", ["mine.toml", "folder/mine"])
def test_a_path_that_leads_nowhere_is_a_missing_file(name: str) -> None:
    with pytest.raises(UserError, match=f"there is no machine file '{name}'"):
        machine(name)


def test_a_folder_is_no_machine_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a file"):
        machine(tmp_path)


def test_positions_of_nested_keys() -> None:
    text = '[ops]\nFFMA = { pipe = "fma", latency_cycles = 4 }\n"HMMA.16816".latency_cycles = 5\n'
    places = locate(text, "f.toml")
    assert (places["ops", "FFMA", "latency_cycles"].line, places["ops", "FFMA", "latency_cycles"].column) == (2, 41)
    assert places["ops", "HMMA.16816", "latency_cycles"].line == 3


def test_keys_inside_multi_line_strings_are_no_keys() -> None:
    places = locate('note = """\nsms = 3\n"""\nsms = 4\n', "f.toml")
    assert places["sms",].line == 4


def test_a_file_inherits_fiber_features_and_switches_one_off(tmp_path: Path) -> None:
    gpu = machine(write(tmp_path, 'inherits = "h100+fiber"\nregister_sharing = false\n'))
    assert (gpu.name, gpu.dynamic_parallelism, gpu.fine_scheduling, gpu.register_sharing) == ("mine", True, True, False)


def test_features_are_laid_over_a_machine_that_says_nothing_of_them(tmp_path: Path) -> None:
    gpu = with_fiber(machine(write(tmp_path, 'inherits = "h100"\nsms = 144\n')))
    assert (gpu.name, gpu.sms, gpu.dynamic_parallelism, gpu.register_sharing) == ("mine+fiber", 144, True, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('inherits = "h100"\nregister_sharing = false\n', "register_sharing = false"),
        ('inherits = "h100"\nmax_wefts_per_subpartition = 16\n', "max_wefts_per_subpartition = 16"),
        ('inherits = "h100"\ndynamic_parallelism = false\n', "dynamic_parallelism = false"),
    ],
)
def test_a_feature_that_a_file_switches_off_is_not_switched_on(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=f"mine has {said} .*mine.toml:2.*this mode would make it"):
        with_fiber(machine(path))


@pytest.mark.parametrize("field", ["sharing_scope", "busy_bits"])
def test_every_value_of_a_machine_with_features_has_their_source(field: str) -> None:
    assert "no FIBER feature" not in machine("h100+fiber").provenance[field].source
    assert "no FIBER feature" in machine("h100").provenance[field].source
