"""What `heddle.run` returns: the result JSON of docs/reference/results.md, with its fields as attributes too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heddle.errors import unknown_name


class Result(Mapping[str, Any]):
    """A result: `result["stalls"]`, `result.stalls`, `dict(result)`. Plain data, safe to write as JSON."""

    __slots__ = ("_row",)

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = dict(row)

    def __getitem__(self, name: str) -> Any:
        return self._row[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._row:
            raise AttributeError(
                unknown_name("field of a result:", name, self._row if not name.startswith("_") else ())
            )
        return self._row[name]

    def __reduce__(self) -> tuple[type[Result], tuple[dict[str, Any]]]:
        return Result, (self._row,)

    def __repr__(self) -> str:
        row = self._row
        return (
            f"<{row.get('kernel')} on {row.get('gpu')}: {row.get('time_us', 0.0):.2f} us, {row.get('tflops', 0.0):.1f} "
            f"TFLOP/s, tensor use {100 * row.get('tensor_utilization', 0.0):.1f} %>"
        )
