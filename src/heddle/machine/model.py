"""Types and bounds of a machine's plain values, as a pydantic model built from the dataclass `Machine` and `FIELDS`.

Only the edge uses it: files and `replace` go through `validated`, the simulator sees the frozen dataclass.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from heddle.errors import SourceLocation, UserError
from heddle.machine.fields import FIELDS, OPTIONAL_GROUP, Bound, FieldInfo
from heddle.machine.spec import Machine

Place = Callable[[tuple[str, ...]], SourceLocation | None]

MOST = 2**40
"""Largest number of a machine: in ticks, and summed over a long run, it still fits 64 bits."""
LEAST = 1e-6
"""Smallest positive number: what divides by it fits 64 bits, too."""
MOST_PARTS = 2**14
"""Most SMs, DRAM channels or L2 partitions: the engine keeps a table of each."""

_BOUNDS: dict[Bound, dict[str, Any]] = {
    "positive": {"gt": 0, "le": MOST},
    "count": {"gt": 0, "le": MOST_PARTS},
    "non-negative": {"ge": 0, "le": MOST},
    "share": {"ge": 0, "le": 1},
    "share below one": {"ge": 0, "lt": 1, "le": 1 - LEAST},
    "any": {},
}
_INHERIT = "what does not inherit must give every value"
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class PipeModel(BaseModel):
    """A pipe of a machine file."""

    model_config = _STRICT
    scope: Literal["subpartition", "sm"]


class OpModel(BaseModel):
    """An opcode's timing in a machine file."""

    model_config = _STRICT
    pipe: str
    initiation_cycles: Annotated[float, Field(gt=0, le=4096, multiple_of=1 / 256)]
    latency_cycles: Annotated[int, Field(ge=0, le=MOST)]


@functools.cache
def model() -> type[BaseModel]:
    """Return the pydantic model of a resolved machine: every field of `Machine` but its provenance.

    Fields of the optional group take the default of the dataclass where a file does not give them.
    """
    hints = get_type_hints(Machine)
    defaults = {field.name: field.default for field in dataclasses.fields(Machine)}
    fields: dict[str, Any] = {
        name: (
            Annotated[hints[name], Field(description=f"{info.meaning} [{info.unit}]", **_bounds(info, hints[name]))],
            defaults[name] if info.group == OPTIONAL_GROUP else ...,
        )
        for name, info in FIELDS.items()
    }
    fields["pipes"] = (dict[str, PipeModel], ...)
    fields["ops"] = (dict[str, OpModel], ...)
    fields["tensor_rate_scale"] = (dict[str, Annotated[float, Field(gt=0, ge=LEAST, le=MOST)]], ...)
    fields["tcgen05_latency_cycles"] = (dict[str, Annotated[int, Field(ge=0, le=MOST)]], ...)
    return create_model("Machine", __config__=_STRICT, **fields)


def _bounds(info: FieldInfo, kind: Any) -> dict[str, Any]:
    bounds = _BOUNDS[info.bound]
    return {**bounds, "ge": LEAST} if kind is float and "gt" in bounds else bounds


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a resolved machine (plain values)."""
    return model().model_json_schema()


def validated(values: Mapping[str, Any], place: Place) -> BaseModel:
    """Check plain values against the model.

    Raises UserError for the first bad value, with its place, what was given and what is allowed.
    """
    try:
        return model().model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        path = tuple(str(part) for part in first["loc"])
        key = ".".join(path)
        info = FIELDS.get(path[0])
        hint = f"{path[0]} [{info.unit}]: {info.meaning}" if info else ""
        if first["type"] == "missing":
            message, hint = f"{key} is missing", "; ".join(part for part in (hint, _INHERIT) if part)
        else:
            message = f"{key} = {first['input']!r}: {_problem(first)}"
        raise UserError(message, where=place(path), hint=hint) from None


def _problem(error: Any) -> str:
    """Say what is wrong with a value in the words of a machine file, not of Python."""
    parts = OpModel.model_fields if error["loc"][0] == "ops" else PipeModel.model_fields
    if error["type"] in ("model_type", "dict_type"):
        return f"needs a table of {', '.join(parts)}"
    if error["type"] == "extra_forbidden":
        return f"unknown key; allowed: {', '.join(parts)}"
    message: str = error["msg"]
    return message[0].lower() + message[1:]
