"""Hypothesis strategies for dataclasses: every field drawn from what its type allows."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

from hypothesis import strategies as st


class Records:
    """Builds records. `special`: strategies for types that are not to be taken apart; `mappings`: for dictionaries."""

    def __init__(self, special: dict[Any, st.SearchStrategy[Any]], mappings: st.SearchStrategy[Any]) -> None:
        self.special, self.mappings = special, mappings

    def builds(self, kind: Any, **overrides: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        """Records of a dataclass with arbitrary fields."""
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return st.builds(kind, **{n: overrides[n] if n in overrides else self.of(hints[n]) for n in names})

    def of(self, hint: Any) -> st.SearchStrategy[Any]:
        """Values of a field's type."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint in self.special:
            return self.special[hint]
        if origin in (typing.Union, types.UnionType):
            return st.one_of(*[st.none() if a is type(None) else self.of(a) for a in arguments])
        if origin is Literal:
            return st.sampled_from(arguments)
        if origin is tuple and Ellipsis in arguments:
            return st.lists(self.of(arguments[0]), max_size=3).map(tuple)
        if origin is tuple:
            return st.tuples(*map(self.of, arguments))
        return self.mappings if origin is not None else self.builds(hint)
