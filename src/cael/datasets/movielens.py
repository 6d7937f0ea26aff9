"""MovieLens 100K: ratings of films by people, and a semi-synthetic catalogue made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.datasets.fetch import MOVIELENS, fetch
from cael.errors import InputError, positive_int

FOLDER = "recbole/dataset_example/ml-100k"


@final
@dataclass(frozen=True, eq=False)
class MovieLens:
    """ratings: (100,000,) from 1 to 5, of films (numbers into `titles`) by people. times: seconds. age, female: of the
    people. genres: (films, genres) 0 or 1, by `genre_names`."""

    people: Ints
    films: Ints
    ratings: Floats
    times: Ints
    age: Floats
    female: Floats
    titles: tuple[str, ...]
    genres: Floats
    genre_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ratings)

    def catalogue(self, films: int = 200, rank: int = 8) -> tuple[Floats, Floats, Floats]:
        """A bandit whose truth is known: contexts of the people, the chance that each likes each of the most rated
        films, and the films' genres.

        The chances (people, films) come from a matrix of that rank, fitted to the ratings by a truncated singular value
        decomposition of their deviations from the means of people and films; what nobody rated is 0 there. So they are
        semi-synthetic: real people and films, and a truth that is a model. A chance is the rating, from 1 to 5, as a
        number from 0 to 1. Contexts are age, sex, and the share of each genre among the films that a person rated.
        """
        most = np.argsort(-np.bincount(self.films, minlength=len(self.titles)), kind="stable")
        kept = most[: positive_int("films", films)]
        place = np.full(len(self.titles), -1)
        place[kept] = np.arange(len(kept))
        rows = place[self.films] >= 0
        people, items, ratings = self.people[rows], place[self.films[rows]], self.ratings[rows]
        mean = ratings.mean()
        person = _means(people, ratings - mean, len(self.age))
        film = _means(items, ratings - mean - person[people], len(kept))
        rest = np.zeros((len(self.age), len(kept)))
        rest[people, items] = ratings - mean - person[people] - film[items]
        u, s, v = np.linalg.svd(rest, full_matrices=False)
        low = (u[:, :rank] * s[:rank]) @ v[:rank]
        chances = np.clip((mean + person[:, None] + film + low - 1) / 4, 0.01, 0.99)
        return self._contexts(), np.asarray(chances), self.genres[kept]

    def _contexts(self) -> Floats:
        seen = np.zeros((len(self.age), len(self.genre_names)))
        np.add.at(seen, self.people, self.genres[self.films])
        share = seen / seen.sum(axis=1, keepdims=True)
        return np.column_stack([self.age / 100, self.female, share])


def _means(groups: Ints, values: Floats, n: int) -> Floats:
    """(n,) means by group, pulled to 0 as by five further values."""
    return np.asarray(np.bincount(groups, values, n) / (np.bincount(groups, minlength=n) + 5))


def movielens(path: Path | None = None) -> MovieLens:
    """MovieLens 100K (Harper and Konstan 2015, ACM Transactions on Interactive Intelligent Systems 5): 943 people,
    1,682 films.

    path: a folder with ml-100k.inter, ml-100k.item and ml-100k.user; by default it is fetched from the wheel of
    RecBole (MIT licence). The data are for research; their licence asks for the citation and forbids commercial use
    without leave of GroupLens.
    """
    folder = fetch(MOVIELENS) / FOLDER if path is None else path
    ratings, items, users = (
        _lines(folder / f"ml-100k.{name}", n) for name, n in (("inter", 4), ("item", 4), ("user", 5))
    )
    person = {row[0]: at for at, row in enumerate(users)}
    film = {row[0]: at for at, row in enumerate(items)}
    genre_names = tuple(sorted({genre for row in items for genre in row[3].split()}))
    genres = np.array([[float(name in row[3].split()) for name in genre_names] for row in items])
    numbers: Array = np.array([[row[2], row[3]] for row in ratings], dtype=np.float64)
    return MovieLens(
        np.array([person[row[0]] for row in ratings]), np.array([film[row[1]] for row in ratings]), numbers[:, 0],
        numbers[:, 1].astype(np.int64), np.array([float(row[1]) for row in users]),
        np.array([float(row[2] == "F") for row in users]),
        tuple(row[1] for row in items), genres, genre_names,
    )  # fmt: skip


def _lines(path: Path, width: int) -> list[list[str]]:
    """The rows of a file of columns between tabs, without its header."""
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]
    wrong = [at for at, row in enumerate(rows) if len(row) != width]
    if wrong:
        raise InputError(f"{path}: line {wrong[0] + 2} has {len(rows[wrong[0]])} columns: expected {width}.")
    return rows
