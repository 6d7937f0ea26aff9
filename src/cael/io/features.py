"""Features as Vowpal Wabbit's JSON has them, nested and sparse, as columns with a name each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from cael.errors import InputError

Kinds: TypeAlias = dict[str, type]
"""float or str for each feature."""


def features_of(where: str, shared: Mapping[str, Any]) -> dict[str, float | str]:
    """The features by name, namespaces joined by _. Names that begin with _ are the format's own. where: for
    messages."""
    features: dict[str, float | str] = {}
    for name, value in _flat("", shared):
        if name in features:
            raise InputError(f"{where}: two features are named {name!r}. Rename one of them.")
        features[name] = value
    return features


def _flat(name: str, value: Any) -> Iterator[tuple[str, float | str]]:
    if isinstance(value, bool | int | float):
        yield name, float(value)
    elif isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not key.startswith("_"):
                yield from _flat(f"{name}_{key}" if name else key, inner)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _flat(name if isinstance(inner, dict) else f"{name}_{at}", inner)


def kinds_with(kinds: Kinds, features: Mapping[str, float | str]) -> Kinds:
    """The kinds with those of more features: text where it is not always a number."""
    for name, value in features.items():
        if kinds.get(name) is not str:
            kinds[name] = str if isinstance(value, str) else float
    return kinds


def filled(kinds: Kinds, features: Mapping[str, float | str]) -> dict[str, float | str]:
    """A value for every feature: one that a line does not have is 0, or the empty category."""
    return dict(_filled(kinds.items(), features))


def _filled(kinds: Iterable[tuple[str, type]], features: Mapping[str, Any]) -> Iterator[tuple[str, float | str]]:
    for name, kind in kinds:
        value = features.get(name)
        if kind is str:
            yield name, "(none)" if value is None else value if isinstance(value, str) else f"{value:g}"
        else:
            yield name, 0.0 if value is None else value
