"""Types and bounds of a machine's plain values, as a pydantic model built from the dataclass `Machine` and `FIELDS`.

Only the edge uses it: files and `replace` go through `validated`, the simulator sees the frozen dataclass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from heddle.errors import SourceLocation, UserError
from heddle.machine.fields import FIELDS, Bound
from heddle.machine.spec import Machine

Place = Callable[[tuple[str, ...]], SourceLocation | None]

_BOUNDS: dict[Bound, dict[str, Any]] = {
    "positive": {"gt": 0},
    "non-negative": {"ge": 0},
    "share": {"ge": 0, "le": 1},
    "share below one": {"ge": 0, "lt": 1},
    "any": {},
}
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
    latency_cycles: Annotated[int, Field(ge=0)]


@functools.cache
def model() -> type[BaseModel]:
    """Return the pydantic model of a resolved machine: every field of `Machine` but its provenance."""
    hints = get_type_hints(Machine)
    fields: dict[str, Any] = {
        name: (Annotated[hints[name], Field(description=f"{info.meaning} [{info.unit}]", **_BOUNDS[info.bound])], ...)
        for name, info in FIELDS.items()
    }
    fields["pipes"] = (dict[str, PipeModel], ...)
    fields["ops"] = (dict[str, OpModel], ...)
    fields["tensor_rate_scale"] = (dict[str, Annotated[float, Field(gt=0)]], ...)
    fields["tcgen05_latency_cycles"] = (dict[str, Annotated[int, Field(ge=0)]], ...)
    return create_model("Machine", __config__=_STRICT, **fields)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a resolved machine (plain values)."""
    return model().model_json_schema()


def validated(values: Mapping[str, Any], place: Place, what: str) -> BaseModel:
    """Check plain values against the model.

    Raises UserError for the first bad value, with its place, what was given and what is allowed; `what` names the
    machine in the message.
    """
    try:
        return model().model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        path = tuple(str(part) for part in first["loc"])
        key = ".".join(path)
        if first["type"] == "missing":
            message = f"{what}: {key} is missing"
        else:
            given = first["input"]
            message = f"{key} = {given!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
        info = FIELDS.get(path[0])
        hint = f"{path[0]} is in {info.unit}: {info.meaning}" if info else ""
        raise UserError(message, where=place(path), hint=hint) from None
