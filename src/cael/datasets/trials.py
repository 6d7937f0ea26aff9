"""Randomised trials with several arms, as logs: ACTG 175 and the RAND Health Insurance Experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.datasets.fetch import ACTG175, RAND_HIE, Wheel, fetch
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.policies.policy import Tabular

PATIENT = ("age", "wtkg", "hemo", "homo", "drugs", "karnof", "oprior", "z30", "preanti", "race", "gender", "str2",
"symptom",
           "cd40", "cd80")  # fmt: skip
"""What was known of a patient of ACTG 175 before treatment."""
PERSON = ("xage", "female", "linc", "disea", "num", "black", "child")
"""What was known of a person of the RAND experiment before the year."""
ARMS = ("zidovudine", "zidovudine and didanosine", "zidovudine and zalcitabine", "didanosine")
PLANS = ("free", "25%", "50%", "95%", "deductible")


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """A randomised trial. contexts: (n, d), columns by `names`. arms: (n,) numbers into arm_names. outcomes: (n,).

    probabilities: (n, k) with which the arms were drawn. people: (n,) whose rows these are, where somebody has several.
    """

    contexts: Floats
    names: tuple[str, ...]
    arms: Ints
    arm_names: tuple[str, ...]
    outcomes: Floats
    probabilities: Floats
    people: Ints | None = None

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def propensities(self) -> Floats:
        """(n,) of the arm that was drawn."""
        return np.asarray(self.probabilities[np.arange(len(self)), self.arms])

    def take(self, rows: Any) -> Trial:
        """Some of its rows."""
        people = None if self.people is None else self.people[rows]
        return Trial(
            self.contexts[rows], self.names, self.arms[rows], self.arm_names, self.outcomes[rows],
            self.probabilities[rows], people
        )  # fmt: skip

    def log(self) -> LoggedData:
        """The trial as a log: who was given what, with which probability, and what became of it."""
        return LoggedData(
            self.contexts, self.arms, self.outcomes, self.propensities, logging=Tabular(self.probabilities),
            clusters=self.people
        )  # fmt: skip


def actg175(path: Path | None = None) -> Trial:
    """ACTG 175 (Hammer et al. 1996, New England Journal of Medicine 335): 2,139 patients with HIV, four treatments.

    The outcome is the count of CD4 cells after about 20 weeks. The arms were drawn alike, within strata, so that every
    propensity is 1/4. path: ACTG175.csv; by default it is fetched from the wheel of lifelines (MIT licence), whose
    copy comes from the R package speff2trial.
    """
    table = _table(_path(ACTG175, path), (*PATIENT, "arms", "cd420"))
    arms = table["arms"].astype(np.intp)
    return Trial(_columns(table, PATIENT), PATIENT, arms, ARMS, table["cd420"], np.full((len(arms), 4), 0.25))


def rand_hie(path: Path | None = None) -> Trial:
    """The RAND Health Insurance Experiment (Newhouse 1993; data of Cameron and Trivedi 2005): 20,190 person-years.

    The arm is the insurance plan by what the family paid itself: nothing, a quarter, a half, nearly all, or an
    individual deductible. The outcome is the number of visits to a doctor in the year. Families were assigned within
    six sites, with probabilities that are not in the data: each propensity is the share of the site's persons that
    have the plan. Years of a person are a cluster. path: randhie.csv; by default it is fetched from the wheel of
    statsmodels (data in the public domain).
    """
    table = _table(_path(RAND_HIE, path), (*PERSON, "coins", "idp", "site", "zper", "mdvis"))
    shares = np.searchsorted([0, 25, 50, 95], table["coins"].clip(max=95))
    arms = np.where(table["idp"] == 1, 4, shares).astype(np.intp)
    people = np.unique(table["zper"], return_inverse=True)[1].astype(np.intp)
    shares_of_site = shares_within(arms, table["site"])
    return Trial(_columns(table, PERSON), PERSON, arms, PLANS, table["mdvis"], shares_of_site, people)


def shares_within(arms: Ints, site: Array) -> Floats:
    """(n, k) the shares of the rows of a site that have each arm."""
    counts = np.zeros((int(site.max()) + 1, int(arms.max()) + 1))
    np.add.at(counts, (site.astype(np.intp), arms), 1)
    rows = counts[site.astype(np.intp)]
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _path(wheel: Wheel, path: Path | None) -> Path:
    return fetch(wheel) / wheel.members[0] if path is None else path


def _columns(table: dict[str, Floats], names: tuple[str, ...]) -> Floats:
    return np.column_stack([table[name] for name in names])


def _table(path: Path, names: tuple[str, ...]) -> dict[str, Floats]:
    """Columns of numbers of a CSV file; none may be missing."""
    lines = [line.split(",") for line in path.read_text("utf-8").splitlines()]
    header = [name.strip('"') for name in lines[0]]
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}: expected {', '.join(names)}.")
    places = [header.index(name) for name in names]
    try:
        values = np.array([[line[place] for place in places] for line in lines[1:]], dtype=np.float64)
    except (ValueError, IndexError) as error:
        raise InputError(f"{path}: a line has no number where one was expected: {error}.") from None
    return dict(zip(names, values.T, strict=True))
