"""Open Bandit Dataset (Saito et al. 2021, arXiv:2008.07146; ZOZO, Inc., CC BY 4.0): parsing, and the target policy.

80 items in 3 positions are 240 actions: action = position * 80 + item, with positions 0, 1, 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.datasets.fetch import OPEN_BANDIT, fetch
from cael.errors import InputError, choose

POSITIONS = 3
NUMBERS = ("item_id", "position", "click", "propensity_score")
USERS = ("user_feature_0", "user_feature_1", "user_feature_2", "user_feature_3")
ITEMS = ("item_feature_1", "item_feature_2", "item_feature_3")
BLOCK = 2**24
"""Bytes that are held as text at once."""


@final
@dataclass(frozen=True, eq=False)
class OpenBanditLog:
    """One log of the data set, in order of time.

    items, positions, clicks: (n,). propensities: (n,), of the item given the position. users: (n, 4) categories.
    item_features: (n_items, 3) categories. n_items: 80 for the campaign "all".
    """

    items: Ints
    positions: Ints
    clicks: Floats
    propensities: Floats
    users: Array
    item_features: Array
    n_items: int

    def __len__(self) -> int:
        return len(self.items)

    @property
    def actions(self) -> Ints:
        """(n,) position * n_items + item."""
        return self.positions * self.n_items + self.items


def open_bandit(policy: str, campaign: str = "all", folder: Path | None = None) -> OpenBanditLog:
    """The log of a policy, "random" or "bts". folder: the full data set's own folder, with POLICY/CAMPAIGN/*.csv below
    it; by default the small version (10,000 rows a log) is fetched into the user's cache.
    """
    choose("policy", policy, ("random", "bts"))
    choose("campaign", campaign, ("all", "men", "women"))
    root = fetch(OPEN_BANDIT) / "obp/dataset/obd" if folder is None else Path(folder)
    here = root / policy / campaign
    for path in (here / f"{campaign}.csv", here / "item_context.csv"):
        if not path.is_file():
            raise InputError(
                f"there is no {path}: the folder must hold {campaign}.csv and item_context.csv in {policy}/{campaign}."
            )
    rows = read_columns(here / f"{campaign}.csv", NUMBERS, USERS)
    items = read_columns(here / "item_context.csv", ("item_id",), ITEMS)
    order = np.argsort(items["item_id"])
    positions = rows["position"].astype(np.intp)
    if len(positions) < 2 or positions.min() < 1 or positions.max() > POSITIONS:
        raise InputError(f"{here}: expected at least 2 rows with positions 1, 2, 3; got {np.unique(positions)[:5]}.")
    return OpenBanditLog(
        items=rows["item_id"].astype(np.intp),
        positions=positions - 1,
        clicks=rows["click"],
        propensities=rows["propensity_score"],
        users=np.stack([rows[name] for name in USERS], axis=1),
        item_features=np.stack([items[name] for name in ITEMS], axis=1)[order],
        n_items=len(order),
    )


def read_columns(path: Path, numbers: tuple[str, ...], words: tuple[str, ...]) -> dict[str, Array]:
    """Some columns of a CSV file: numbers as float64, words as their rank among the sorted words."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.float64() for name in numbers} | {name: pa.dictionary(pa.int32(), pa.string()) for name in words}
    reading = csv.ReadOptions(use_threads=False, block_size=BLOCK)
    converting = csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[])
    try:
        table = csv.read_csv(path, reading, convert_options=converting).unify_dictionaries().combine_chunks()
    except (pa.ArrowInvalid, KeyError) as error:
        raise InputError(f"{path}: {str(error).removeprefix('CSV parse error: ')}") from error
    columns = {name: table[name].to_numpy() for name in numbers}
    for name in words:
        column = table[name].combine_chunks()
        rank = np.argsort(np.argsort(column.dictionary.to_numpy(zero_copy_only=False)))
        columns[name] = rank[column.indices.to_numpy()]
    return columns


def dummies(table: Array) -> Floats:
    """Indicators of the categories of each column, all but the first: (n, c) -> (n, d)."""
    parts = []
    for column in table.T:
        values, codes = np.unique(column, return_inverse=True)
        parts.append(np.eye(len(values))[codes.reshape(-1), 1:])
    return np.concatenate(parts, axis=1)


def flattened(table: Floats) -> Floats:
    """(items, positions) probabilities of an item given the position -> (positions x items,) of the actions."""
    return np.ascontiguousarray(table.T).reshape(-1) / table.shape[1]


def flattened_as_published(table: Floats) -> Floats:
    """The same in C order, item * 3 + position, as published pipelines do: the wrong actions get the probabilities."""
    return np.ascontiguousarray(table).reshape(-1) / table.shape[1]


def frequencies(log: OpenBanditLog, prior: float = 0.5) -> Floats:
    """How often each item was shown in each position, (items, positions), each column a distribution."""
    counts = np.full((log.n_items, POSITIONS), prior)
    np.add.at(counts, (log.items, log.positions), 1.0)
    return counts / counts.sum(axis=0)


def thompson(alpha: Floats, beta: Floats, draws: int = 100_000, seed: int = 12345) -> Floats:
    """Bernoulli Thompson sampling with fixed Beta(alpha, beta): chances of each item in each position, (items, 3)."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(alpha), POSITIONS))
    for size in [10_000] * (draws // 10_000) + [draws % 10_000]:
        theta = rng.beta(alpha, beta, size=(size, len(alpha)))
        best = np.argpartition(-theta, POSITIONS - 1, axis=1)[:, :POSITIONS]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(theta, best, axis=1), axis=1), axis=1)
        for position in range(POSITIONS):
            counts[:, position] += np.bincount(best[:, position], minlength=len(alpha))
    return counts / draws


def thompson_prior(campaign: str = "all", path: Path | None = None) -> tuple[Floats, Floats]:
    """alpha and beta of the production policy before the first row of its log, one each per item."""
    path = fetch(OPEN_BANDIT) / "obp/policy/conf/prior_bts.yaml" if path is None else path
    numbers: dict[tuple[str, str], list[float]] = {}
    section, name = "", ""
    for line in path.read_text("utf-8").splitlines():
        word = line.strip()
        if word.startswith("- "):
            numbers.setdefault((section, name), []).append(float(word[2:]))
        elif line.startswith(" "):
            name = word.removesuffix(":")
        else:
            section = word.removesuffix(":")
    if not {(campaign, "alpha"), (campaign, "beta")} <= numbers.keys():
        raise InputError(f"{path} has no alpha and beta for the campaign {campaign!r}.")
    return np.array(numbers[campaign, "alpha"]), np.array(numbers[campaign, "beta"])
