"""Do reasons name what people found out, and otherwise only what was observed?"""

from heddle.study.case_file import own_cases
from heddle.study.reasons import known_reasons, observation

ROW = {
    "tensor_utilization": 0.5, "time_us": 10.0, "clock_mhz": 1500.0, "traffic": {"dram_bytes": 20_000_000},
    "stalls_by_role": {
        "consumer": {"issued": 0.2, "gmma": 0.5, "mbarrier": 0.3},
        "producer": {"issued": 0.1, "mbarrier": 0.9},
    },
}  # fmt: skip


def test_every_known_reason_belongs_to_a_case_or_a_family() -> None:
    cases = own_cases()
    names = {case.case_id for case in cases} | {case.family for case in cases}
    assert set(known_reasons()) - names == set()


def test_an_observation_names_the_largest_stall_of_the_busiest_role() -> None:
    assert observation(ROW) == "tensor use 50 %, DRAM 2000 GB/s, consumer gmma 50 %, at 1500 MHz"


def test_without_a_row_there_is_no_observation() -> None:
    assert observation({}) == ""
