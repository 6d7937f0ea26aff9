"""One log for both sides: made once with a seed, kept as .npy files, read by each side with np.load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DIM = 10
CATEGORIES = (6, 5)
SEED = 20240
ROWS = 20_000


@dataclass(frozen=True)
class Size:
    """n rows, k actions."""

    n: int
    k: int

    def __str__(self) -> str:
        return f"n={self.n:,} k={self.k}"

    @property
    def key(self) -> str:
        return f"n{self.n}-k{self.k}"


@dataclass(frozen=True)
class World:
    """Scores of actions, linear in the context: (d, k) matrices. embedding: (k, 2) categories."""

    reward: Floats
    logging: Floats
    target: Floats
    model_error: Floats
    embedding: NDArray[np.int64]


def folder_of(size: Size, cache: Path) -> Path:
    """Where the log of this size lies; it is made if it is not there."""
    folder = cache / f"data-{size.key}-seed{SEED}"
    if not (folder / "truth.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(size, folder)
    return folder


def _world(size: Size, rng: np.random.Generator) -> World:
    embedding = np.stack([rng.integers(0, c, size.k) for c in CATEGORIES], axis=1)
    parts = [rng.normal(size=(DIM, c)) for c in CATEGORIES]
    shared = sum(part[:, embedding[:, j]] for j, part in enumerate(parts)) / np.sqrt(2 * DIM)

    def own() -> Floats:
        return rng.normal(size=(DIM, size.k)) / np.sqrt(DIM)

    return World(
        reward=shared,
        logging=0.3 * shared + 0.5 * own(),
        target=0.8 * shared + 0.4 * own(),
        model_error=0.5 * own(),
        embedding=embedding,
    )


def _make(size: Size, folder: Path) -> None:
    rng = np.random.default_rng([SEED, size.n, size.k])
    world = _world(size, rng)
    contexts = rng.normal(size=(size.n, DIM))
    tables = {name: np.empty((size.n, size.k)) for name in ("target", "logging", "q_hat")}
    actions, rewards = np.empty(size.n, dtype=np.int64), np.empty(size.n)
    truth = 0.0
    for part in _blocks(size.n):
        x = contexts[part]
        q = _sigmoid(x @ world.reward - 1)
        tables["logging"][part] = _softmax(x @ world.logging)
        tables["target"][part] = _softmax(x @ world.target)
        tables["q_hat"][part] = _sigmoid(x @ (world.reward + world.model_error) - 1)
        actions[part] = _draw(tables["logging"][part], rng)
        rewards[part] = rng.random(len(x)) < q[np.arange(len(x)), actions[part]]
        truth += float((tables["target"][part] * q).sum())
    arrays = {
        "contexts": contexts,
        "actions": actions,
        "rewards": rewards,
        "embedding": world.embedding,
        **tables,
    }
    arrays["propensities"] = tables["logging"][np.arange(size.n), actions]
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "truth.json").write_text(json.dumps({"value": truth / size.n}))


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _softmax(x: Floats) -> Floats:
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _draw(p: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """One action of each row, by the inverse of its distribution function."""
    below = p.cumsum(axis=1) < rng.random((len(p), 1))
    return np.minimum(below.sum(axis=1), p.shape[1] - 1)
