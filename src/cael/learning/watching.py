"""Watch: the lift of a policy over the old one, asked again as new rows come, with one error for all looks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.errors import LogError, NeedsError, PolicyError
from cael.judging.thresholds import DEFAULT
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.old_policy import ModelledOld
from cael.learning.saved import read_document, restored, slim, slim_scorer, sound_policy, write_document, written
from cael.learning.scorers import NetworkScores
from cael.learning.sequences import width
from cael.learning.sound import UNUSABLE, is_number, need, refuse_strange_numbers
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.policies.policy import probabilities
from cael.results.sheet import Column, Note, Sheet, Shown, level_text, number, signed

FORMAT = "cael.watch/1"
SHOWN = 10
"""Looks that the table shows."""


@final
@dataclass(frozen=True)
class Sums:
    """Of the rows so far: their number and that of independent units (clusters); the sums of z and its square (alone),
    and over units of its square, of it times the rows of the unit, and of the squares of these; the sums of w^2, of the
    model's part of z and its square, of the residual and its square, and of the rewards."""

    n: int = 0
    units: int = 0
    z: float = 0.0
    alone: float = 0.0
    square: float = 0.0
    cross: float = 0.0
    sizes: float = 0.0
    second: float = 0.0
    model: float = 0.0
    model_square: float = 0.0
    left: float = 0.0
    left_square: float = 0.0
    logged: float = 0.0

    def plus(self, other: Sums) -> Sums:
        return Sums(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    @property
    def mean(self) -> float:
        return self.z / self.n

    @property
    def weights(self) -> float:
        """E w^2, at least 1."""
        return max(self.second / self.n, 1.0)

    @property
    def error(self) -> float:
        """The standard error of the mean, clusters counted as one; at least what E w^2 implies, for rows that are as
        alike within clusters as these."""
        m, n = self.mean, self.n
        seen = max(self.square - 2 * m * self.cross + m**2 * self.sizes, 0.0) / n
        left = max(self.left_square / n - (self.left / n) ** 2, 0.0)
        model = max(self.model_square / n - (self.model / n) ** 2, 0.0)
        row = max(self.alone / n - m**2, 0.0)
        return math.sqrt(max(seen, (model + (self.weights - 1) * left) * (seen / row if row > 0 else 1.0)) / n)


@final
@dataclass(frozen=True)
class Look:
    """The lift after n rows, and its lower bound, which holds for all looks together."""

    n: int
    lift: float
    bound: float


@final
@dataclass(frozen=True, eq=False, repr=False)
class Watch(Shown):
    """A policy whose lift over the old one is looked at again and again.

    policy: that is watched. model: the reward model of its control variate, which saw none of the watched rows. level:
    of the lower bound, for all looks together. min_lift: that the bound must exceed. first: rows at the first look, for
    which the bound is tightest. sums: of all rows so far. looks: all of them. seen: fingerprints of the logs, none of
    which counts twice.
    """

    policy: LearnedPolicy
    model: NetworkScores
    level: float = 0.95
    min_lift: float = 0.0
    first: int = 0
    sums: Sums = field(default_factory=Sums)
    looks: tuple[Look, ...] = ()
    seen: tuple[str, ...] = ()

    def more(self, log: LoggedData) -> Watch:
        """The watch after the rows of a log of the old policy, none of which was learned from or watched before."""
        self._check(log)
        parts = (self._sums(batch, unit) for batch, unit in parts_of(log))
        sums = self.sums
        for part in parts:
            sums = sums.plus(part)
        grown = replace(self, sums=sums, first=self.first or sums.n, seen=(*self.seen, log.fingerprint))
        return replace(grown, looks=(*self.looks, grown._look()))

    def _look(self) -> Look:
        """What the rows so far say. With less than enough effective rows the bound says nothing."""
        sums = self.sums
        few = sums.n / sums.weights < DEFAULT.effective_rows[0] or sums.units < DEFAULT.effective_rows[0]
        reach = math.inf if few else width(sums.n, self.first, self.level) * sums.error
        return Look(sums.n, sums.mean, sums.mean - reach)

    def _check(self, log: LoggedData) -> None:
        if log.propensities is None:
            raise NeedsError("watching needs propensities: how likely the logged actions were.")
        if log.fingerprint in self.seen:
            raise LogError(
                "this log was watched already: no row counts twice. Give the rows alone that came since the last look."
            )
        labels = self.policy.labels
        known = None if log.table is None else tuple(log.table.actions)
        if labels is not None and known is not None and known != tuple(labels):
            raise PolicyError(
                f"the policy was learned for {len(labels)} actions in another order than those of this log, which has "
                f"{len(known)}. Give the table of actions that it was learned with (--actions, --n-actions)."
            )

    def _sums(self, batch: Batch, unit: np.ndarray) -> Sums:
        """Of some rows. unit: (b,) of each."""
        rows, p = np.arange(len(batch)), probabilities(self.policy, batch)
        assert batch.propensities is not None
        w = p[rows, batch.actions] / batch.propensities
        model, left = self._predicted(batch, p)
        z = model + (w - 1) * left
        _, code = np.unique(unit, return_inverse=True)
        total, size = np.bincount(code, z), np.bincount(code)
        return Sums(
            len(rows), len(size), float(z.sum()), float(z @ z), float(total @ total), float(total @ size),
            float(size @ size), float((w**2).sum()), float(model.sum()), float(model @ model), float(left.sum()),
            float(left @ left), float(batch.rewards.sum()),
        )  # fmt: skip

    def _predicted(self, batch: Batch, p: Floats) -> tuple[Floats, Floats]:
        """(b,) what the model expects of the policy above the old one; what it leaves of the logged rewards."""
        table, rows = self.model.scores(batch), np.arange(len(batch))
        logged = table[rows, batch.actions]
        usual = logged
        if not isinstance(self.policy.old, ModelledOld):
            usual = np.einsum("ij,ij->i", probabilities(self.policy.old, batch), table)
        return np.einsum("ij,ij->i", p, table) - usual, batch.rewards - logged

    @property
    def bound(self) -> float:
        """The lift is at least this, whenever one looks; -inf before the first look."""
        return self.looks[-1].bound if self.looks else -math.inf

    @property
    def ships(self) -> bool:
        """Whether the bound was ever above min_lift: it holds for all looks, so that one is enough."""
        return any(look.bound > self.min_lift for look in self.looks)

    @property
    def decision(self) -> str:
        """ "ship", or "keep" the old policy and go on watching."""
        return "ship" if self.ships else "keep"

    def sentence(self) -> str:
        """The decision in words."""
        if not self.looks:
            return "Nothing was watched yet."
        look, level = self.looks[-1], level_text(self.level)
        bound = f"at least {signed(look.bound)}" if math.isfinite(look.bound) else "not bounded: too few effective rows"
        word = "Ship it" if self.ships else "Keep the old policy, and go on watching"
        return (
            f"{word}: on {look.n:,} rows that took no part in learning, the lift is {signed(look.lift)} over "
            f"{number(self.sums.logged / self.sums.n)}; with {level} confidence, at all looks together, {bound}."
        )

    def sheet(self) -> Sheet:
        columns = (Column("rows", "count"), Column("lift", "lift"), Column("bound", "lift", "at least"))
        rows = tuple((look.n, look.lift, look.bound) for look in self.looks[-SHOWN:])
        summary = (Note(self.sentence(), "ok" if self.ships else "caution"),)
        return Sheet(f"{self.policy!r}, watched {len(self.looks)} times", columns, rows, summary, ())

    def __repr__(self) -> str:
        return f"Watch({self.decision}: {self.policy!r}, {len(self.looks)} looks, at least {signed(self.bound)})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "decision": self.decision, "sentence": self.sentence(), "policy": repr(self.policy), "level": self.level,
            "min_lift": self.min_lift, "rows": self.sums.n, "units": self.sums.units,
            "looks": [{**asdict(look), "bound": finite(look.bound)} for look in self.looks],
        }  # fmt: skip

    def to_json(self, indent: int | None = 2) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write everything to a JSON file, which `cael.read_watch` reads and `cael watch` goes on with."""
        state = {
            "first": self.first, "seen": list(self.seen), "sums": asdict(self.sums), "level": self.level,
            "min_lift": self.min_lift, "looks": [[look.n, look.lift, finite(look.bound)] for look in self.looks],
        }  # fmt: skip
        parts = written(slim(self.policy)), written(slim_scorer(self.model))
        return write_document(path, FORMAT, {**state, "policy": parts[0], "model": parts[1]})


def finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def parts_of(log: LoggedData) -> Iterator[tuple[Batch, np.ndarray]]:
    """Batches of a log with the unit of each row: clusters stay whole."""
    if log.clusters is None:
        for batch in log.batches(width=log.n_actions):
            yield batch, np.arange(len(batch))
    else:
        yield log.whole, log.clusters


def read_watch(path: str | Path, logging: Any = None) -> Watch:
    """A watch from its file. logging: a log, or its logging policy, where the policy leans on that."""
    entry, known = read_document(path, FORMAT), getattr(logging, "logging", logging)
    try:
        looks = tuple(Look(n, lift, -math.inf if bound is None else bound) for n, lift, bound in entry["looks"])
        policy, model = sound_policy(entry["policy"], known), restored(entry["model"], known)
        refuse_strange_numbers(model)
        numbers = (entry["level"], entry["min_lift"], entry["first"], *entry["sums"].values())
        need(all(map(is_number, numbers)) and 0.5 < entry["level"] < 1, "numbers, and a level in (0.5, 1)")
        need(all(isinstance(name, str) for name in entry["seen"]), "fingerprints as text")
        if not isinstance(model, NetworkScores):
            raise PolicyError(f"its model is a {type(model).__name__}.")
        return Watch(
            policy, model, entry["level"], entry["min_lift"], entry["first"], Sums(**entry["sums"]), looks,
            tuple(entry["seen"]),
        )  # fmt: skip
    except UNUSABLE as error:
        raise PolicyError(f"{path} does not hold a watch that can be used: {error}") from None
