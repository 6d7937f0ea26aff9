"""Worlds by name, as a spec names them."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any

from cael import worlds
from cael.errors import InputError
from cael.worlds import World

KINDS: dict[str, type] = {
    "paper": worlds.PaperWorld,
    "embedding": worlds.EmbeddingWorld,
    "independent": worlds.IndependentWorld,
    "dense": worlds.DenseWorld,
    "deficient": worlds.DeficientWorld,
    "offcem": worlds.OffCEMWorld,
    "classification": worlds.ClassificationWorld,
    "open-bandit": worlds.OpenBanditWorld,
    "open-bandit-known": worlds.KnownRewardWorld,
}


def world_of(settings: dict[str, Any]) -> tuple[World, int]:
    """The world that a cell describes, {kind, settings...} or {kind = "suite", name}, and the rows of a log that suit
    it (0: any)."""
    kind, others = settings.get("kind"), {name: value for name, value in settings.items() if name != "kind"}
    if kind == "suite":
        suite = worlds.suite(fetched=True)
        if others["name"] not in suite:
            raise InputError(f"the suite has no world {others['name']!r}; there are: {', '.join(suite)}.")
        return suite[others["name"]]
    if kind not in KINDS:
        raise InputError(f"unknown kind of world {kind!r}; there are: {', '.join(KINDS)}, suite.")
    return KINDS[kind](**others), 0


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings less those that the world has by itself, so that one world has one description."""
    if settings == {"kind": "suite", "name": "paper"} and world_of(settings)[0] == worlds.PaperWorld():
        return {"kind": "paper"}
    kind = KINDS.get(settings.get("kind", ""))
    defaults = {} if kind is None else {field.name: field.default for field in fields(kind)}
    return {name: value for name, value in settings.items() if name not in defaults or defaults[name] != value}


@lru_cache(maxsize=16)
def truth_of(canonical: str) -> tuple[World, float]:
    """The world of a cell, from its canonical JSON, and the value of its target; kept, since both cost time."""
    world = world_of(json.loads(canonical))[0]
    return world, world.value(world.target)
