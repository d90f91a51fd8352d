"""Does reading a cases file give the right cases, and one clear message for each thing that can be wrong?"""

from pathlib import Path

import pytest

from heddle.errors import UserError
from heddle.study.case_file import Case, own_cases, read_cases

HEADER = (
    "case_id,gpu,kernel,dtype,m,n,k,measured,unit,measured_min,measured_max,"
    "clock_mhz,l2_state,includes_launch,power_note"
)
GOOD = "dg-bf16-001,h100,gemm,bf16,4096,2048,1024,100,us,95,105,,cold,1,L2 flushed"


def write(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def one(tmp_path: Path, line: str) -> Case:
    return read_cases(write(tmp_path, line))[0]


def test_a_row_becomes_a_case(tmp_path: Path) -> None:
    case = one(tmp_path, GOOD)
    assert (case.sizes, case.measured, case.interval_us) == ({"m": 4096, "n": 2048, "k": 1024}, 100.0, (95.0, 105.0))


def test_a_cold_row_whose_note_speaks_of_a_flush_is_flushed(tmp_path: Path) -> None:
    assert one(tmp_path, GOOD).l2_state == "flushed"


def test_a_cold_row_without_a_flush_is_cold(tmp_path: Path) -> None:
    assert one(tmp_path, GOOD.replace("L2 flushed", "one wave")).l2_state == "cold"


def test_the_flops_of_a_gemm_are_2mnk(tmp_path: Path) -> None:
    assert one(tmp_path, GOOD).flops == 2 * 4096 * 2048 * 1024


def test_a_case_is_large_only_if_all_three_sizes_are(tmp_path: Path) -> None:
    assert one(tmp_path, GOOD).large
    assert not one(tmp_path, GOOD.replace("1024", "512")).large


def test_tflops_convert_to_time_and_back(tmp_path: Path) -> None:
    case = one(tmp_path, "x-1,h100,gemm,bf16,1000,1000,1000,20,tflops,,,,,,")
    assert case.microseconds(20) == pytest.approx(100.0)
    assert case.in_unit(100.0) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("case_id", "family"),
    [
        ("dg-bf16-001", "dg-bf16"),
        ("gtsim-gemm-512-512-512", "gtsim-gemm"),
        ("flashgpu-fa3-b16-s512-h16-d128-full", "flashgpu-fa3"),
        ("gtsim-fa3-h8-s512", "gtsim-fa3"),
        ("mamf-005", "mamf"),
    ],
)
def test_the_family_is_the_id_without_number_and_sizes(tmp_path: Path, case_id: str, family: str) -> None:
    assert one(tmp_path, GOOD.replace("dg-bf16-001", case_id)).family == family


BAD = [
    (GOOD.replace("100,us", "fast,us"), "line 2: column 'measured': 'fast' is not a number"),
    (GOOD.replace("100,us", "-1,us"), "column 'measured': '-1' must be a positive number"),
    (GOOD.replace("100,us", "1e-300,us"), "column 'measured': '1e-300' is not a size, time, rate or clock"),
    (GOOD.replace("100,us", "nan,us"), "column 'measured': 'nan' must be a positive number"),
    (GOOD.replace("4096", "0"), "column 'm': '0' must be a positive number"),
    (GOOD.replace("4096", "1.5"), "column 'm': '1.5' must be a whole number"),
    (GOOD.replace("4096", ""), "column 'm': is empty; gemm needs m, n, k"),
    (GOOD.replace("h100", ""), "column 'gpu': is empty; it is required"),
    (GOOD.replace(",us,", ",ms,"), "unknown value in column 'unit': 'ms'; allowed: cycles, tflops, us"),
    (GOOD.replace("cold", "hot"), "unknown value in column 'l2_state': 'hot'; allowed: cold, flushed, warm"),
    (GOOD.replace("95,105", "105,95"), "column 'measured_min': 105 is above measured_max 95"),
    (GOOD + ",more", "16 columns, the header has 15"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[message for _, message in BAD])
def test_a_malformed_row_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, line)
    with pytest.raises(UserError) as raised:
        read_cases(path)
    assert str(raised.value).startswith(f"{path}:2: {message.removeprefix('line 2: ')}")


def test_a_case_given_twice_names_the_first_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r":3: case 'dg-bf16-001' was already given in line 2"):
        read_cases(write(tmp_path, GOOD, GOOD))


def test_an_unknown_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s):1: unknown column 'mesured'.*did you mean 'measured'"):
        read_cases(write(tmp_path, header=HEADER + ",mesured"))


def test_a_column_given_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r":1: column 'm' is given 2 times"):
        read_cases(write(tmp_path, header=HEADER + ",m"))


def test_a_note_over_two_lines_leaves_the_line_numbers_right(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r":4: column 'm': '0' must be a positive number"):
        read_cases(write(tmp_path, GOOD.replace("L2 flushed", '"L2\nflushed"'), GOOD.replace("4096", "0")))


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_cases(path)) == 1


def test_a_quoted_line_shows_no_control_characters(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_cases(write(tmp_path, GOOD.replace("4096", "\x1b[2J\x00")))
    assert all(letter.isprintable() or letter == "\n" for letter in str(caught.value))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r":1: no column 'unit'"):
        read_cases(write(tmp_path, header="case_id,gpu,kernel,measured"))


def test_a_missing_file_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the cases file"):
        read_cases(tmp_path / "absent.csv")


def test_an_empty_file_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="no column 'case_id'"):
        read_cases(path)


def test_an_unclosed_quote_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="malformed CSV"):
        read_cases(write(tmp_path, GOOD.replace("L2 flushed", '"open')))


def test_our_own_cases_all_name_a_public_source() -> None:
    cases = own_cases()
    assert len(cases) > 50
    assert [
        case.case_id for case in cases if not case.source.startswith("https://") and "arXiv" not in case.source
    ] == []


def test_the_full_list_can_be_read_where_it_is_present(shared: Path) -> None:
    assert len(read_cases(shared / "validation" / "cases.csv")) > 100
