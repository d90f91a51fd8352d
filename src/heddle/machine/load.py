"""Read machine files: presets by name, a user's TOML by path, with `inherits` and overrides.

An entry is a plain value, or a table with `value` (or, for `ops` and `pipes`, their parts) and optional `unit`, `kind`,
`source` and `note`. A plain value in a user's file gets its file and line as source.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from heddle.errors import SourceLocation, UserError
from heddle.machine.check import built, merge, unknown_field
from heddle.machine.fields import FIELDS, MAPPING_UNITS, OPTIONAL_GROUP
from heddle.machine.positions import KeyPath, locate, syntax_error_place
from heddle.machine.spec import Kind, Machine, OpTiming, Provenance

PRESETS = Path(__file__).parent / "presets"
NO_FEATURE = "no FIBER feature in this machine"
"""The source of what today's GPUs lack."""
FIBER = "fiber"
"""The file of features that "+fiber" lays over a machine."""
SUFFIX = f"+{FIBER}"
_META = {"unit", "kind", "source", "note"}
Parsed = tuple[dict[str, Any], dict[KeyPath, SourceLocation]]
"""Entries of a file, and where each stands; never changed in place."""


@dataclass(slots=True)
class _Draft:
    """A machine while its file and those it inherits from are read."""

    values: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Provenance] = field(default_factory=dict)
    places: dict[KeyPath, SourceLocation] = field(default_factory=dict)


def available() -> list[str]:
    """Return the names of the presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml") if path.stem not in ("sources", FIBER))


def machine(name_or_path: str | Path) -> Machine:
    """Load a preset by name, or a TOML file by path; "h100+fiber" has all FIBER features.

    Raises UserError with the place of the first mistake.
    """
    name = str(name_or_path)
    return _preset(name) if name.removesuffix(SUFFIX) in available() else _loaded(name)


@functools.cache
def _preset(name: str) -> Machine:
    """Load a preset once: its file is part of the package, and nothing can change a machine."""
    return _loaded(name)


def _loaded(name_or_path: str) -> Machine:
    path = _find(name_or_path.removesuffix(SUFFIX), None, Path())
    draft = _read(path, ())
    if name_or_path.endswith(SUFFIX):
        _lay_over(draft, PRESETS / f"{FIBER}.toml")
    for feature, info in FIELDS.items():
        if info.group == OPTIONAL_GROUP and feature not in draft.provenance:
            draft.provenance[feature] = Provenance(unit=info.unit, kind="specified", source=NO_FEATURE)
    try:
        return built(draft.values, draft.provenance, draft.places.get)
    except UserError as error:
        if error.where is not None and error.where.file == str(path):
            raise
        # a value is missing, or contradicts one that this file inherits
        inherited = f"the value is that of {Path(error.where.file).name}:{error.where.line}" if error.where else ""
        hint = "; ".join(part for part in (inherited, error.hint) if part)
        raise UserError(f"{path}: {error.message}", hint=hint) from None


def with_fiber(base: Machine) -> Machine:
    """Return a machine with all FIBER features, as "+fiber" does for a preset; one that has features stays as it is.

    Raises UserError if the machine's file itself says otherwise of a feature.
    """
    if base.dynamic_parallelism:
        return base
    draft = _Draft(values={"name": base.name})
    _lay_over(draft, PRESETS / f"{FIBER}.toml")
    for feature in draft.values.keys() & FIELDS.keys() - {"name"}:
        _agrees(base, feature, draft.values[feature])
    ops = {name: OpTiming(**timing) for name, timing in draft.values.pop("ops").items()}
    changed = base.replace(**draft.values, ops={**ops, **base.ops})
    return dataclasses.replace(changed, provenance={**draft.provenance, **_stated(base)})


def _stated(base: Machine) -> dict[str, Provenance]:
    """What the machine's own file says; the rest of a machine without features is that there are none."""
    return {name: origin for name, origin in base.provenance.items() if origin.source != NO_FEATURE}


def _agrees(base: Machine, feature: str, value: Any) -> None:
    """Refuse to switch on what a file has switched off."""
    stated = _stated(base).get(feature)
    if stated is not None and getattr(base, feature) != value:
        given = getattr(base, feature)
        raise UserError(
            f"{base.name} has {feature} = {_toml(given)} ({stated.source}); this mode would make it {_toml(value)} and "
            "switch all FIBER features on",
            hint=f'write inherits = "...{SUFFIX}" in the file, so that it has the features except those that it names',
        )


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _lay_over(draft: _Draft, path: Path) -> None:
    """Set the values of a feature file in a machine, whose name gets the feature's."""
    raw, places = _parse(path)
    draft.places.update(places)
    for name, entry in raw.items():
        _add(draft, name, entry, places, path)
    draft.values["name"] = f"{draft.values.get('name', '')}+{path.stem}"


def _find(name: str, where: SourceLocation | None, folder: Path) -> Path:
    """Return the file of a preset name or of a path relative to `folder`."""
    if name in available():
        return PRESETS / f"{name}.toml"
    path = folder / name
    if path.is_file():
        return path
    if name.strip() and path.exists():
        raise UserError(f"{str(path)!r} is not a file", where=where, hint="give a preset's name or a TOML file")
    if path.suffix == ".toml" or len(Path(name).parts) > 1:
        raise UserError(
            f"there is no machine file {str(path)!r}", where=where, hint=f"presets: {', '.join(available())}"
        )
    near = difflib.get_close_matches(name, available(), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    message = f"unknown machine {name!r}; presets: {', '.join(available())}, or the path of a TOML file"
    raise UserError(message, where=where, hint=hint + "`heddle machines` lists the presets")


def _read(path: Path, chain: tuple[Path, ...]) -> _Draft:
    raw, places = _parse(path)
    raw = dict(raw)  # presets are parsed once for all
    base = raw.pop("inherits", None)
    draft = _Draft()
    if base is not None:
        place = places.get(("inherits",))
        if not isinstance(base, str):
            raise UserError(f"inherits = {base!r}: needs the name of a preset or a path", where=place)
        parent = _find(base.removesuffix(SUFFIX), place, path.parent)
        if parent in chain or parent == path:
            raise UserError(f"inherits = {base!r}: the files inherit from each other", where=place)
        draft = _read(parent, (*chain, path))
        if base.endswith(SUFFIX):
            _lay_over(draft, PRESETS / f"{FIBER}.toml")
    draft.places.update(places)
    if "name" not in raw and base is not None:
        raw["name"] = path.stem
    for name, entry in raw.items():
        _add(draft, name, entry, places, path)
    return draft


def _parse(path: Path) -> Parsed:
    return _parsed_preset(path) if path.parent == PRESETS else _parsed(path)


@functools.cache
def _parsed_preset(path: Path) -> Parsed:
    return _parsed(path)


def _parsed(path: Path) -> Parsed:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read machine file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"machine file {path} is not UTF-8 text") from None
    try:
        return tomllib.loads(text), locate(text, str(path))
    except tomllib.TOMLDecodeError as error:
        message = str(error).partition(" (at ")[0]
        raise UserError(
            f"not a valid TOML file: {message[0].lower()}{message[1:]}", where=syntax_error_place(str(error), path)
        ) from None


def _add(draft: _Draft, name: str, entry: Any, places: Mapping[KeyPath, SourceLocation], path: Path) -> None:
    """Enter one top-level key of a file into the draft."""
    is_mapping = name in MAPPING_UNITS and isinstance(entry, Mapping)
    entries = {f"{name}.{key}": (key, e) for key, e in entry.items()} if is_mapping else {name: (name, entry)}
    if is_mapping:
        draft.values.setdefault(name, {})
    for label, (key, item) in entries.items():
        key_path = (name, key) if is_mapping else (name,)
        value, provenance = _split(name, item, key_path, places, path)
        if name not in FIELDS and name not in MAPPING_UNITS:
            raise unknown_field(name, places.get((name, ""), places.get((name,))))
        merge(draft.values, name, {key: value} if is_mapping else value, places.get(key_path))
        draft.provenance[label] = provenance


def _split(
    name: str, item: Any, key_path: KeyPath, places: Mapping[KeyPath, SourceLocation], path: Path
) -> tuple[Any, Provenance]:
    """Part an entry into its plain value and its provenance."""
    place = places.get(key_path) or SourceLocation(str(path), 1)
    meta = {k: item[k] for k in _META & item.keys()} if isinstance(item, Mapping) else {}
    value = {k: v for k, v in item.items() if k not in _META} if isinstance(item, Mapping) else item
    if isinstance(value, Mapping) and value.keys() == {"value"}:
        value = value["value"]
    elif isinstance(value, Mapping) and "value" in value:
        extra = sorted(value.keys() - {"value"})[0]
        raise UserError(
            f"{'.'.join(key_path)}: unknown key {extra!r}; allowed: value, unit, kind, source, note",
            where=places.get((*key_path, extra), place),
        )
    elif isinstance(item, Mapping) and not value:
        raise UserError(f"{'.'.join(key_path)} has no value", where=place, hint="for example { value = 4 }")
    unit = MAPPING_UNITS.get(name) or (FIELDS[name].unit if name in FIELDS else "")
    _check_meta(meta, unit, key_path, places, place)
    own = f"{path.name}:{place.line}" if path.parent == PRESETS else str(place)  # no path of this machine in results
    source = meta.get("source", own)
    return value, Provenance(
        unit=unit,
        kind=meta.get("kind", "assumed"),
        source=sources().get(source, source),
        note=meta.get("note", ""),
    )


def _check_meta(
    meta: Mapping[str, Any],
    unit: str,
    key_path: KeyPath,
    places: Mapping[KeyPath, SourceLocation],
    place: SourceLocation,
) -> None:
    name = ".".join(key_path)
    for key, text in meta.items():
        if not isinstance(text, str):
            raise UserError(f"{name}: {key} = {text!r} must be text", where=places.get((*key_path, key), place))
    if (kind := meta.get("kind", "assumed")) not in get_args(Kind):
        where = places.get((*key_path, "kind"), place)
        raise UserError(f"{name}: unknown kind {kind!r}; allowed: {', '.join(get_args(Kind))}", where=where)
    if unit and (given := meta.get("unit", unit)) != unit:
        where = places.get((*key_path, "unit"), place)
        raise UserError(
            f"{name}: the unit is {unit!r}, got {given!r}", where=where, hint="convert the value; units are fixed"
        )


@functools.cache
def sources() -> dict[str, str]:
    """Return the public sources that presets cite, by key."""
    return {k: str(v) for k, v in tomllib.loads((PRESETS / "sources.toml").read_text(encoding="utf-8")).items()}
