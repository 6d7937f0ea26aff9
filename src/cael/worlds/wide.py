"""Worlds on which trust is judged: what careful people's logs look like, and a population of worlds drawn at random."""

from __future__ import annotations

import numpy as np

from cael.worlds.mixed import NOISES, PLAYS, SHAPES, LearningWorld, MixedWorld, Play
from cael.worlds.world import World

UNIFORM = Play("uniform")


def wide() -> dict[str, tuple[World, int]]:
    """Name -> (world, rows of a log): the worlds beside `suite` on which trust is judged.

    >>> len(wide())
    20
    """
    abtest = MixedWorld(
        "linear", "normal", UNIFORM, Play("arm", 1.0), n_actions=2, context_dim=4, context_share=0.7, effect=0.5,
        seed=1,
    )  # fmt: skip
    return {
        "rare arm": (
            MixedWorld("items", "normal", Play("arm", 0.01), Play("arm", 0.9), n_actions=10, context_share=0.9,
                       effect=0.85, reward_std=0.5), 2000),
        "rare arm, clicks": (
            MixedWorld("items", "clicks", Play("arm", 0.01), Play("arm", 0.9), n_actions=5, context_share=0.5, rate=0.1,
                       effect=0.8), 4000),
        "rare clicks, equal arms": (
            MixedWorld("none", "clicks", UNIFORM, Play("arm", 1.0), n_actions=10, rate=0.005, effect=0.0), 2000),
        "revenue": (
            MixedWorld("linear", "revenue", UNIFORM, Play("softmax", 1.0), n_actions=5, effect=0.5, reward_std=1.5),
            5000),
        "A/B test": (abtest, 2000),
        "A/B test, clicks": (
            MixedWorld("items", "clicks", UNIFORM, Play("arm", 1.0), n_actions=3, context_dim=3, context_share=0.3,
                       rate=0.1, effect=0.3, seed=2), 3000),
        "A/B test, 100,000 rows": (abtest, 100_000),
        "near the logging policy": (
            MixedWorld("linear", "clicks", Play("softmax", 1.0, 0.5), Play("near", 0.05), n_actions=50, rate=0.05,
                       effect=0.5), 50_000),
        "epsilon-greedy, 5%": (
            MixedWorld("linear", "normal", Play("greedy", 0.05, 0.5), Play("softmax", 1.5), n_actions=10), 5000),
        "learning policy": (
            LearningWorld(MixedWorld("linear", "normal", UNIFORM, Play("softmax", 1.0), n_actions=10)), 4000),
        "actions do not matter": (
            MixedWorld("none", "normal", UNIFORM, Play("arm", 0.8), n_actions=20, context_share=1.0), 2000),
        "1,000 clustered actions": (
            MixedWorld("clusters", "normal", Play("softmax", 0.3), Play("greedy", 0.2), n_actions=1000, context_dim=10,
                       feature_dim=5), 4000),
        "3 of 50 features": (
            MixedWorld("sparse", "normal", UNIFORM, Play("softmax", 2.0), n_actions=10, context_dim=50), 3000),
        "item effects, n about k": (
            MixedWorld("items", "normal", UNIFORM, Play("softmax", 1.0), n_actions=1000), 1000),
        "independent linear": (
            MixedWorld("linear", "normal", UNIFORM, Play("greedy", 0.2), n_actions=60, reward_std=0.5), 2000),
        "action features": (
            MixedWorld("interaction", "normal", Play("softmax", 0.5), Play("greedy", 0.2), n_actions=200,
                       feature_dim=8), 3000),
        "personalised": (
            MixedWorld("linear", "normal", UNIFORM, Play("softmax", 2.0), n_actions=10, context_share=0.3,
                       reward_std=0.5), 10_000),
        "personalised, tree": (
            MixedWorld("tree", "clicks", Play("softmax", 0.5, 0.7), Play("greedy", 0.1), n_actions=20, rate=0.2),
            5000),
        "heavy tails": (
            MixedWorld("waves", "heavy", Play("softmax", 1.0, 0.5), Play("softmax", 2.0), n_actions=30), 3000),
        "popular items": (
            MixedWorld("saturated", "counts", Play("popular", 1.0), Play("softmax", 1.0), n_actions=100, feature_dim=5,
                       rate=0.5, effect=0.5), 5000),
    }  # fmt: skip


def random_world(seed: int) -> tuple[MixedWorld, int]:
    """A world drawn at random, and the number of rows of its logs.

    >>> world, rows = random_world(0)
    >>> 3 <= world.n_actions <= 400 and 600 <= rows <= 6000
    True
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x3A4D]))
    world = MixedWorld(
        shape=str(rng.choice(list(SHAPES))), noise=str(rng.choice(list(NOISES))),
        logging_play=_logging(rng), target_play=_target(rng), n_actions=_between(rng, 3, 400),
        context_dim=_between(rng, 2, 20), feature_dim=int(rng.choice([0, 8])),
        context_share=float(rng.choice([0.0, 0.3, 0.8])), effect=float(rng.choice([0.3, 1.0])),
        rate=float(np.exp(rng.uniform(np.log(0.02), np.log(0.3)))), reward_std=float(rng.choice([0.5, 1.0])),
        seed=seed,
    )  # fmt: skip
    return world, _between(rng, 600, 6000)


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number between two, uniform on the logarithmic scale."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def _logging(rng: np.random.Generator) -> Play:
    kind, sight = str(rng.choice([kind for kind in PLAYS if kind != "near"])), float(rng.choice([-0.8, 0.0, 0.5, 1.0]))
    low, high = {"softmax": (-3.0, 2.0), "greedy": (0.02, 0.2), "arm": (0.005, 0.05), "popular": (0.5, 1.2)}.get(
        kind, (1.0, 1.0)
    )
    return Play(kind, float(rng.uniform(low, high)), sight)


def _target(rng: np.random.Generator) -> Play:
    kind, sight = str(rng.choice([*PLAYS, "softmax", "greedy"])), float(rng.choice([0.5, 1.0]))
    low, high = {
        "softmax": (0.5, 5.0), "greedy": (0.0, 0.2), "arm": (0.3, 1.0), "popular": (0.5, 1.5), "near": (0.05, 0.5),
    }.get(kind, (1.0, 1.0))  # fmt: skip
    return Play(kind, float(rng.uniform(low, high)), sight)
