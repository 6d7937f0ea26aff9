"""The worlds on which an estimator is judged, each with the number of rows that suits it."""

from __future__ import annotations

from cael.worlds.classification import ClassificationWorld
from cael.worlds.deficient import DeficientWorld
from cael.worlds.embedded import EmbeddingWorld
from cael.worlds.paper import PaperWorld
from cael.worlds.smooth import DenseWorld, IndependentWorld
from cael.worlds.world import World


def suite(*, fetched: bool = False) -> dict[str, tuple[World, int]]:
    """Name -> (world, rows of a log). fetched: also those whose data come from the package index.

    >>> sorted(suite())[:3]
    ['deficient', 'dense', 'digits']
    """
    worlds: dict[str, tuple[World, int]] = {
        "paper": (PaperWorld(), 1000),
        "embedding-linear": (EmbeddingWorld(), 2000),
        "embedding-logistic": (EmbeddingWorld(reward="logistic"), 4000),
        "embedding-sparse": (EmbeddingWorld(reward="sparse"), 2000),
        "embedding-drawn": (EmbeddingWorld(drawn=True), 2000),
        "independent": (IndependentWorld(), 1500),
        "digits": (ClassificationWorld(), 1000),
        "deficient": (DeficientWorld(), 1000),
        "dense": (DenseWorld(), 2000),
    }
    if fetched:
        for data in ("letter", "penbased", "satimage", "optdigits"):
            worlds[data] = (ClassificationWorld(data), 2000)
    return worlds
