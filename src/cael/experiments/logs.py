"""Worlds by name, as a spec names them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, final

from cael import worlds
from cael.errors import InputError
from cael.worlds import World

KINDS: dict[str, type] = {
    "paper": worlds.PaperWorld,
    "embedding": worlds.EmbeddingWorld,
    "independent": worlds.IndependentWorld,
    "dense": worlds.DenseWorld,
    "deficient": worlds.DeficientWorld,
    "classification": worlds.ClassificationWorld,
    "open-bandit": worlds.OpenBanditWorld,
    "open-bandit-known": worlds.KnownRewardWorld,
}


@final
@dataclass(frozen=True)
class Source:
    """A world and the rows of a log that suit it (0: any)."""

    world: World
    rows: int = 0


def world_of(settings: dict[str, Any]) -> Source:
    """The world that a cell describes: {kind, settings...}, or {kind = "suite", name}."""
    told = dict(settings)
    kind = told.pop("kind", None)
    if kind == "suite":
        suite = worlds.suite(fetched=True)
        if told["name"] not in suite:
            raise InputError(f"the suite has no world {told['name']!r}; there are: {', '.join(suite)}.")
        return Source(*suite[told["name"]])
    if kind not in KINDS:
        raise InputError(f"unknown kind of world {kind!r}; there are: {', '.join(KINDS)}, suite.")
    return Source(KINDS[kind](**told))


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings less those that the world has by itself, so that one world has one description."""
    if settings == {"kind": "suite", "name": "paper"} and world_of(settings).world == worlds.PaperWorld():
        return {"kind": "paper"}
    kind = KINDS.get(settings.get("kind", ""))
    own = {} if kind is None else {each.name: each.default for each in fields(kind)}
    return {name: value for name, value in settings.items() if name not in own or own[name] != value}


@lru_cache(maxsize=16)
def truth_of(canonical: str) -> tuple[World, float]:
    """The world of a cell, from its canonical JSON, and the value of its target; kept, since both cost time."""
    world = world_of(json.loads(canonical)).world
    return world, world.value(world.target)
