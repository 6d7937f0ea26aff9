"""The paper's empirical sentences as data, each with the rule that tests it, and a verdict that is computed.

A claim holds if all its checks are supported and does not hold if any is refuted; a claim that something is "generally"
so goes by the majority. It is judged under each reading of the paper that was run: the names CAELMIPS and AELMIPS in
its settings stand for the estimators of that reading.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any, final

from cael.errors import InputError
from cael.experiments.claim_rules import RULES, Check
from cael.experiments.claim_words import rule_of
from cael.experiments.summary import COLUMNS, Table

LEAST_RUNS = 10
"""With fewer runs a bootstrap says nothing, and neither does a verdict."""
HOLDS, FAILS, OPEN, NOT_RUN = "holds", "does not hold", "cannot tell", "not run yet"
DEFAULT = "constant-posterior"
SUFFIX = {
    DEFAULT: {}, "offset": {"CAELMIPS": "CAELMIPS(offset)", "AELMIPS": "AELMIPS(offset)"},
    "through-posterior": {"CAELMIPS": "CAELMIPS(through-posterior)"},
    "literal": {"CAELMIPS": "CAELMIPS(literal)"},
}  # fmt: skip
"""Reading -> what the names in a claim stand for under it."""
READINGS = (DEFAULT, "offset", "through-posterior")
"""The readings that every claim is judged under. Plain gradient steps, of "literal", diverge in some cells (0064)."""


@final
@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words. specs: the experiments that test it. test: its rule; settings: of the rule.

    beyond: cells of our own grids, outside what the paper is likely to have drawn: shown, and without a say.
    """

    id: str
    specs: tuple[str, ...]
    where: str
    sentence: str
    test: str
    settings: dict[str, Any]
    generally: bool = False
    note: str = ""
    beyond: Any = ()

    def under(self, reading: str) -> Claim:
        """The claim with the estimators of a reading."""
        return replace(self, settings=_named(self.settings, SUFFIX[reading]))

    @property
    def depends_on_reading(self) -> bool:
        return self.under("offset").settings != self.settings

    @property
    def rule(self) -> str:
        """Metric, estimators, cells and rule, in a line."""
        return rule_of(self.specs, self.test, self.settings)


@final
@dataclass(frozen=True)
class Verdict:
    """What came of a claim. numbers: the check that is worst for it. supported, refuted, open: counts of checks.

    beyond: what the cells of our own grids say, in words. runs: the least number of runs of an estimator in it.
    """

    claim: Claim
    reading: str
    verdict: str
    numbers: str
    supported: int = 0
    refuted: int = 0
    open: int = 0
    beyond: str = ""
    runs: int = 0

    def to_dict(self) -> dict[str, Any]:
        claim = {name: getattr(self.claim, name) for name in ("id", "where", "sentence", "rule", "note")}
        return claim | {name: value for name, value in vars(self).items() if name != "claim"}

    @property
    def counts(self) -> str:
        words = {"hold": self.supported, "do not": self.refuted, "open": self.open}
        return ", ".join(f"{count} {word}" for word, count in words.items() if count)


def load_claims() -> list[Claim]:
    """All claims, in the order of the paper; one with `targets` is as many claims, each on its own experiment."""
    common = {field.name for field in fields(Claim)} | {"spec", "targets"}
    claims = []
    for entry in _data()["claim"]:
        told = {name: value for name, value in entry.items() if name in common}
        settings = {name: value for name, value in entry.items() if name not in common}
        targets = told.pop("targets", None) or {"": told.pop("spec", None)}
        for suffix, spec in targets.items():
            of = {**told, "id": told["id"] + (f"-{suffix}" if suffix else "")}
            of["where"] += f", {suffix} target" if suffix else ""
            claims.append(Claim(**{"specs": (spec,), **of}, settings=settings))
    return [replace(claim, specs=tuple(claim.specs)) for claim in claims]


def untested() -> list[dict[str, str]]:
    """Sentences that no statistic tests: {where, sentence, why}."""
    entries: list[dict[str, str]] = _data()["untested"]
    return entries


def _data() -> dict[str, Any]:
    return tomllib.loads(resources.files("cael.experiments").joinpath("claims.toml").read_text("utf-8"))


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """The same settings, with other names of estimators; what follows a comma in a name stays."""
    if isinstance(value, dict):
        return {key: _named(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if isinstance(value, str):
        return re.sub(r"^(\w+)(?=$|,)", lambda found: names.get(found[0], found[0]), value)
    return value


def estimators_in(value: Any) -> set[str]:
    """The names of estimators in the settings of a claim."""
    if isinstance(value, dict):
        return {name for key, each in value.items() if key not in NO_ESTIMATORS for name in estimators_in(each)}
    if isinstance(value, list | tuple):
        return {name for each in value for name in estimators_in(each)}
    return {value} if isinstance(value, str) else set()


NO_ESTIMATORS = ("statistic", "at", "by", "beside")
"""Settings that name something else, or what may be missing."""


def judge(claim: Claim, tables: Mapping[str, Table], reading: str = DEFAULT) -> Verdict:
    """The verdict on a claim under a reading, from the tables of its experiments by name."""
    if claim.test not in RULES:
        raise InputError(f"claim {claim.id}: unknown rule {claim.test!r}; there are: {', '.join(RULES)}.")
    read = claim.under(reading)
    names = estimators_in(read.settings)
    there = [tables[name] for name in claim.specs if name in tables and names <= tables[name].spec.estimators.keys()]
    column = read.settings.get("statistic") in COLUMNS
    if len(there) < len(claim.specs) or (column and not all(known(table, read) for table in there)):
        return Verdict(claim, reading, NOT_RUN, "")
    checks = [check for table in there for check in RULES[claim.test](table, **read.settings)]
    if not checks:
        return Verdict(claim, reading, NOT_RUN, "this run does not visit the problems that the claim is about")
    beyond = [
        check for table in there for check in (RULES[claim.test](table, **{**read.settings, "at": claim.beyond}))
    ] if claim.beyond else []  # fmt: skip
    runs = min(table.spec.runs_of(name) for table in there for name in names)
    return _summed_up(claim, reading, checks, beyond, runs)


def known(table: Table, claim: Claim) -> bool:
    """Whether rows have the column that a claim is about; older rows have not."""
    names, column = estimators_in(claim.settings), claim.settings["statistic"]
    return any(row.get(column) is not None for (_, name), rows in table.rows.items() if name in names for row in rows)


def _summed_up(claim: Claim, reading: str, checks: list[Check], beyond: list[Check], runs: int) -> Verdict:
    verdicts = [check.verdict(len(checks)) for check in checks]
    worst = min(range(len(checks)), key=lambda i: (_worst_first(verdicts[i]), checks[i].margin))
    numbers, held, failed = checks[worst].text, verdicts.count(1), verdicts.count(-1)
    if runs < LEAST_RUNS:
        verdict, numbers = OPEN, f"{runs} runs are too few to tell; {numbers}"
    elif claim.generally:
        verdict = HOLDS if held > len(checks) / 2 else FAILS if failed > len(checks) / 2 else OPEN
    else:
        verdict = FAILS if failed else HOLDS if held == len(checks) else OPEN
    return Verdict(claim, reading, verdict, numbers, held, failed, verdicts.count(0), _outside(beyond), runs)


def _worst_first(verdict: int) -> int:
    return {-1: 0, 0: 1, 1: 2}[verdict]


def _outside(checks: list[Check]) -> str:
    """What cells beyond the likely ones say: how many checks are refuted there, and the worst of them."""
    refuted = sorted((check for check in checks if check.verdict(len(checks)) < 0), key=lambda check: check.margin)
    if not refuted:
        return ""
    return f"on our own more extreme settings {len(refuted)} of {len(checks)} checks do not hold: {refuted[0].text}"


def judge_all(tables: Mapping[str, Table], reading: str = DEFAULT) -> list[Verdict]:
    """The verdicts under a reading, of all claims that these experiments test some part of."""
    return [judge(claim, tables, reading) for claim in load_claims() if set(claim.specs) & tables.keys()]
