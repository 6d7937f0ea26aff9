"""Worlds: simulated problems whose truth is known. Truth lives here, never in a log."""

from cael.worlds.catalogue import CatalogueWorld
from cael.worlds.classification import ClassificationWorld
from cael.worlds.clustered import OffCEMWorld
from cael.worlds.deficient import DeficientWorld
from cael.worlds.embedded import EmbeddingWorld
from cael.worlds.mixed import LearningWorld, MixedWorld, Play
from cael.worlds.open_bandit import KnownRewardWorld, OpenBanditWorld
from cael.worlds.paper import PaperWorld
from cael.worlds.smooth import DenseWorld, IndependentWorld
from cael.worlds.suite import suite
from cael.worlds.wide import random_world, wide
from cael.worlds.world import World

__all__ = [
    "CatalogueWorld",
    "ClassificationWorld",
    "DeficientWorld",
    "DenseWorld",
    "EmbeddingWorld",
    "IndependentWorld",
    "KnownRewardWorld",
    "LearningWorld",
    "MixedWorld",
    "OffCEMWorld",
    "OpenBanditWorld",
    "PaperWorld",
    "Play",
    "World",
    "random_world",
    "suite",
    "wide",
]
